use std::time::Duration;

use trishanku_framework::inject::Probe;

fn main() {
    drop(Probe::exec(["true"]).successes(2).termination_grace_period(Duration::from_secs(1)));
}

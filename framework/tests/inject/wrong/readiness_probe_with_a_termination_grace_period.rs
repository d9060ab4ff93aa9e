use std::time::Duration;

use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    let probe = Probe::exec(["true"]).termination_grace_period(Duration::from_secs(1));
    pod.sidecar("gitcd", "gitcd:1").readiness(probe).add();
}

fn main() {}

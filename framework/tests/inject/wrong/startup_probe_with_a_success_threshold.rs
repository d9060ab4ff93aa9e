use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    pod.sidecar("gitcd", "gitcd:1").startup(Probe::exec(["true"]).successes(2)).add();
}

fn main() {}

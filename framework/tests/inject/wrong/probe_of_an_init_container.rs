use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    pod.init("git-pre", "gitcd:1").readiness(Probe::exec(["true"])).add();
}

fn main() {}

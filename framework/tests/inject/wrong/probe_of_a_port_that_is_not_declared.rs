use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    pod.sidecar("gitcd", "gitcd:1").startup(Probe::tcp(2479)).add();
}

fn main() {}

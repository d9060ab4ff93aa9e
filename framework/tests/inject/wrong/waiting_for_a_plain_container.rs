use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    let gitcd = pod.container("gitcd", "gitcd:1").startup(Probe::exec(["true"])).add();
    pod.sidecar("kube-apiserver", "kube-apiserver:1").after(&gitcd).add();
}

fn main() {}

use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    let gitcd = pod.sidecar("gitcd", "gitcd:1").readiness(Probe::exec(["true"])).add();
    pod.sidecar("kube-apiserver", "kube-apiserver:1").after(&gitcd).add();
}

fn main() {}

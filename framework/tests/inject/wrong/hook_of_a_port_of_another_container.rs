use trishanku_framework::inject::{LifecycleHook, Pod};

fn build(pod: &mut Pod<'_>) {
    let mut gitcd = pod.sidecar("gitcd", "gitcd:1");
    let client = gitcd.port("client", 2479);
    gitcd.add();
    pod.sidecar("kube-apiserver", "kube-apiserver:1").pre_stop(LifecycleHook::http(&client, "/")).add();
}

fn main() {}

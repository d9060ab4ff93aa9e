use trishanku_framework::inject::Pod;

fn build(pod: &mut Pod<'_>) {
    let mut gitcd = pod.sidecar("gitcd", "gitcd:1");
    let client = gitcd.port("client", 2479);
    gitcd.add();
    pod.sidecar("kube-apiserver", "kube-apiserver:1").host_port(&client, 80).add();
}

fn main() {}

use trishanku_framework::inject::{Claim, Pod};

fn build(pod: &mut Pod<'_>) {
    let data = pod.volume("data", Claim::named("data").read_only());
    pod.sidecar("gitcd", "gitcd:1").mount_writable(&data.sub_path("a"), "/data").add();
}

fn main() {}

use trishanku_framework::inject::{Pod, SecretRef};

fn build(pod: &mut Pod<'_>) {
    let credentials = pod.volume("credentials", SecretRef::named("git").files());
    pod.sidecar("gitcd", "gitcd:1").mount_writable(&credentials, "/credentials").add();
}

fn main() {}

use trishanku_framework::inject::{Pod, SecretRef};

fn build(pod: &mut Pod<'_>) {
    let secret = pod.volume("secret", SecretRef::named("s").files());
    pod.sidecar("fuse", "fuse:1").mount(&secret.bidirectional(), "/secret").add();
}

fn main() {}

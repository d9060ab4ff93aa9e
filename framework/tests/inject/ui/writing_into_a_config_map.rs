use trishanku_framework::inject::{ConfigMapRef, Pod};

fn build(pod: &mut Pod<'_>) {
    let settings = pod.volume("settings", ConfigMapRef::named("settings").files());
    pod.sidecar("gitcd", "gitcd:1").mount_writable(&settings, "/settings").add();
}

fn main() {}

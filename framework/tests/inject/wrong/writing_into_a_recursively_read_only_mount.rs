use trishanku_framework::inject::{EmptyDir, Pod};

fn build(pod: &mut Pod<'_>) {
    let data = pod.volume("data", EmptyDir::new());
    pod.sidecar("logs", "logs:1").mount_writable(&data.recursive_read_only(), "/data").add();
}

fn main() {}

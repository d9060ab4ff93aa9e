use trishanku_framework::inject::{HostPath, Pod};

fn build(pod: &mut Pod<'_>) {
    let node = pod.volume("node", HostPath::dangerous("/var/log"));
    pod.sidecar("logs", "logs:1").mount_writable(&node, "/logs").add();
}

fn main() {}

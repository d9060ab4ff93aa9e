use trishanku_framework::inject::{Csi, Pod};

fn build(pod: &mut Pod<'_>) {
    let secrets = pod.volume("secrets", Csi::driver("secrets-store.csi.k8s.io").read_only());
    pod.sidecar("logs", "logs:1").mount_writable(&secrets, "/secrets").add();
}

fn main() {}

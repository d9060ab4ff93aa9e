use trishanku_framework::inject::{LifecycleHook, Pod};

fn build(pod: &mut Pod<'_>) {
    let mut dns = pod.sidecar("dns", "dns:1");
    let queries = dns.udp_port("queries", 53);
    dns.pre_stop(LifecycleHook::http(&queries, "/stop")).add();
}

fn main() {}

use trishanku_framework::inject::{Pod, Probe};

fn build(pod: &mut Pod<'_>) {
    let mut dns = pod.sidecar("dns", "dns:1");
    let queries = dns.udp_port("queries", 53);
    dns.startup(Probe::tcp(&queries)).add();
}

fn main() {}

// This program is valid: if it does not compile, the others may fail for the same reason.
use std::time::Duration;

use trishanku_framework::inject::{
    Claim, Csi, EmptyDir, HostPath, Injector, LifecycleHook, Pod, Probe, SecretRef, Users,
};

fn build<'p>(pod: &mut Pod<'p>) {
    let repository = pod.volume("repo", EmptyDir::new());
    let data = pod.volume("data", Claim::named("data"));
    let credentials = pod.volume("credentials", SecretRef::named("git").files());
    let cloned = pod.init("git-pre", "gitcd:1").mount_writable(&repository, "/repo").add();
    let mut gitcd = pod.sidecar("gitcd", "gitcd:1").mount(&credentials, "/credentials").mount_writable(&data, "/data");
    let client = gitcd.port("client", 2479);
    let gitcd = gitcd.startup(Probe::grpc(&client).every(Duration::from_secs(1))).after(&cloned).add();
    pod.sidecar("kube-apiserver", "kube-apiserver:1").mount(&repository, "/repo").after(&gitcd).after(&cloned).add();
    pod.container("watcher", "watcher:1").readiness(Probe::exec(["true"])).startup(Probe::exec(["true"])).add();
    let node = pod.volume("node", HostPath::dangerous("/var/log").writable());
    let secrets = pod.volume("secrets", Csi::driver("secrets-store.csi.k8s.io"));
    let mut dns = pod.sidecar("dns", "dns:1").mount_writable(&node, "/logs").mount_writable(&secrets, "/secrets");
    let (queries, status) = (dns.udp_port("queries", 53), dns.port("status", 8080));
    dns.host_port(&queries, 53)
        .host_port(&status, 8080)
        .readiness(Probe::http(&status, "/").successes(2).every(Duration::from_secs(1)))
        .liveness(Probe::tcp(&status).termination_grace_period(Duration::from_secs(1)))
        .post_start(LifecycleHook::exec(["true"]))
        .pre_stop(LifecycleHook::http(&status, "/stop"))
        .add();
    let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig"));
    pod.give_kubeconfig(Users::All, &kubeconfig.as_file("/heaven/kubeconfig"));
}

fn main() {
    drop(Injector::new(Default::default()).with(|pod| build(pod)).finish());
}

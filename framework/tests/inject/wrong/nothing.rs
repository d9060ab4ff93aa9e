// This program is valid: if it does not compile, the others may fail for the same reason.
use std::time::Duration;

use trishanku_framework::inject::{Claim, EmptyDir, Injector, Pod, Probe, SecretRef, Users};

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
    let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig"));
    pod.give_kubeconfig(Users::All, &kubeconfig.as_file("/heaven/kubeconfig"));
}

fn main() {
    drop(Injector::new(Default::default()).with(|pod| build(pod)).finish());
}

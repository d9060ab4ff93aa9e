//! An injection like that of a heaven, and a user's pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Value, json};
use trishanku_framework::inject::{
    Awaited, Claim, ConfigMapRef, EmptyDir, FieldRef, InjectError, Injector, Pod, Probe, Projected, PullPolicy,
    SecretRef, Security, Users, Volume, Writable,
};

/// The options of a heaven.
#[derive(Clone, Debug)]
pub(crate) struct Heaven {
    pub(crate) events_etcd: bool,
    /// On a claim instead of an empty folder.
    pub(crate) claim: bool,
    pub(crate) kubeconfig: Option<Users>,
    /// A container beside the user's.
    pub(crate) watcher: bool,
    pub(crate) apiserver: String,
}

impl Default for Heaven {
    fn default() -> Self {
        let apiserver = "registry.k8s.io/kube-apiserver:v1.36.3".to_owned();
        Self { events_etcd: false, claim: false, kubeconfig: Some(Users::All), watcher: false, apiserver }
    }
}

pub(crate) const SIDECARS: [&str; 5] = ["git-pre", "gitcd-init", "gitcd", "events-etcd", "kube-apiserver"];
pub(crate) const WATCHER: &str = "watcher";
pub(crate) const VOLUMES: [&str; 6] = ["repo", "git-cred", "events", "certificates", "tmp", "kubeconfig"];
pub(crate) const PULL_SECRET: &str = "gar-cred";

const GITCD: &str = "ghcr.io/trishanku-org/gitcd:1";

impl Heaven {
    pub(crate) fn inject(&self, template: &PodTemplateSpec) -> Result<PodTemplateSpec, InjectError> {
        Injector::new(template.clone()).with(|pod| self.build(pod)).finish()
    }

    fn build(&self, pod: &mut Pod<'_>) {
        let repository = if self.claim {
            pod.volume("repo", Claim::named("heaven-repo"))
        } else {
            pod.volume("repo", EmptyDir::new().size_limit("10240Mi"))
        };
        let (store, mut started) = store(pod, &repository);
        let mut events = None;
        if self.events_etcd {
            let (address, etcd) = events_etcd(pod);
            events = Some(format!("--etcd-servers-overrides=/events#{address}"));
            started.push(etcd);
        }
        self.apiserver(pod, &store, events, &started);
        let secret = SecretRef::named("heaven-controller");
        let kubeconfig = pod.kubeconfig("kubeconfig", secret.key("kubeconfig")).in_folder("/var/run/heaven");
        if let Some(users) = self.kubeconfig.clone() {
            pod.give_kubeconfig(users, &kubeconfig);
        }
        if self.watcher {
            let mut watcher = pod.container(WATCHER, "watcher:1");
            let metrics = watcher.port_near("watch-metrics", 8080);
            watcher
                .command(["watcher"])
                .working_dir("/repo")
                .env_from(ConfigMapRef::named("watcher"))
                .env_from(&secret)
                .kubeconfig(&kubeconfig)
                .mount(&repository.sub_path("trees"), "/repo")
                .startup(Probe::tcp(&metrics))
                .liveness(Probe::http(&metrics, "/livez").timeout(Duration::from_secs(5)))
                .readiness(Probe::exec(["watcher", "--check"]).every(Duration::from_secs(10)))
                .add();
        }
        pod.pull_with(&SecretRef::named(PULL_SECRET));
    }

    fn apiserver<'p>(&self, pod: &mut Pod<'p>, store: &str, events: Option<String>, started: &[Awaited<'p>]) {
        let files = Projected::new()
            .files(SecretRef::named("heaven-cert-kubernetes").files().item("tls.crt", "kubernetes/tls.crt").mode(0o444))
            .files(ConfigMapRef::named("heaven-entrypoints").files().optional())
            .token("token", Some("heaven"))
            .field("labels", FieldRef::new("metadata.labels"));
        let certificates = pod.volume("certificates", files);
        let temporary = pod.volume("tmp", EmptyDir::new().in_memory());
        let mut apiserver = pod.sidecar("kube-apiserver", &self.apiserver);
        let https = apiserver.port("heaven-https", 6443);
        let mut apiserver = apiserver
            .command(["kube-apiserver"])
            .args([format!("--etcd-servers={store}"), format!("--secure-port={https}")])
            .args(events)
            .env("POD_IP", FieldRef::new("status.podIP"))
            .mount(&certificates, "/.trishanku/secrets")
            .mount_writable(&temporary, "/tmp")
            .security(Security::restricted().user(65532, 65532).capability("NET_BIND_SERVICE"))
            .request("cpu", "1000m")
            .limit("memory", "2048Mi")
            .startup(Probe::https(&https, "/readyz").every(Duration::from_secs(1)).failures(120))
            .liveness(Probe::https(&https, "/livez"));
        for earlier in started {
            apiserver = apiserver.after(earlier);
        }
        apiserver.add();
    }
}

/// Adds the store. Returns its address.
fn store<'p>(pod: &mut Pod<'p>, repository: &Volume<'p, Writable>) -> (String, Vec<Awaited<'p>>) {
    let secret = SecretRef::named("git-cred");
    let credentials = pod.volume("git-cred", secret.files().mode(0o444));
    let cloned = pod
        .init("git-pre", GITCD)
        .pull_policy(PullPolicy::Always)
        .args(["clone", "--repo=/root/repo"])
        .env("HOME", "/root")
        .env("EMPTY", "")
        .env("GIT_USERNAME", secret.key("username"))
        .env("GIT_BRANCH", ConfigMapRef::named("heaven-entrypoints").key("branch"))
        .mount_writable(repository, "/root/repo")
        .mount(&credentials, "/.trishanku/secrets/git-cred")
        .add();
    let prepared =
        pod.init("gitcd-init", GITCD).args(["init"]).mount_writable(repository, "/root/repo").after(&cloned).add();
    let mut gitcd = pod.sidecar("gitcd", GITCD);
    let client = gitcd.port_near("gitcd-client", 2479);
    let address = format!("http://127.0.0.1:{client}");
    let gitcd = gitcd
        .args(["serve", &format!("--listen-urls=default=http://0.0.0.0:{client}")])
        .mount_writable(repository, "/root/repo")
        .startup(Probe::grpc(&client).every(Duration::from_secs(1)).failures(300))
        .readiness(Probe::http(&client, "/readyz"))
        .after(&prepared)
        .add();
    (address, vec![gitcd])
}

fn events_etcd<'p>(pod: &mut Pod<'p>) -> (String, Awaited<'p>) {
    let data = pod.volume("events", EmptyDir::new());
    let mut etcd = pod.sidecar("events-etcd", "registry.k8s.io/etcd:3.6.16-0");
    let client = etcd.port_near("events-client", 2379);
    let address = format!("http://127.0.0.1:{client}");
    let etcd = etcd
        .args([format!("--listen-client-urls={address}")])
        .mount_writable(&data, "/var/lib/etcd")
        .startup(Probe::exec(["etcdctl", "endpoint", "health"]).timeout(Duration::from_secs(5)))
        .add();
    (address, etcd)
}

pub(crate) fn template(template: Value) -> PodTemplateSpec {
    serde_json::from_value(template).unwrap()
}

/// The template of the published sample of a heaven for kube-controller-manager.
pub(crate) fn controller_manager() -> PodTemplateSpec {
    template(json!({
        "metadata": {"annotations": {"from": "trishanku"}, "labels": {"from": "trishanku"}},
        "spec": {
            "automountServiceAccountToken": false,
            "initContainers": [{"name": "wait", "image": "busybox:1.37", "command": ["true"]}],
            "containers": [{
                "name": "kcm",
                "image": "registry.k8s.io/kube-controller-manager:v1.36.3",
                "imagePullPolicy": "IfNotPresent",
                "command": ["kube-controller-manager", "--bind-address=0.0.0.0", "--leader-elect=false"],
                "ports": [{"containerPort": 10257, "name": "metrics"}],
                "volumeMounts": [{"name": "ca", "mountPath": "/trishanku/certs/ca"}]
            }],
            "volumes": [{"name": "ca", "secret": {"secretName": "sample-k8s-cert-ca"}}]
        }
    }))
}

//! The node's programs and their flags. In a network of its own, every program has its usual port.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::init::Program;
use super::keys::Keys;
use super::{NODE, NODE_ADDRESS, POD_RANGE, SERVICE_RANGE};

/// containerd's socket, in the mounts of the node.
pub(super) const SOCKET: &str = "/run/containerd/containerd.sock";

/// The name of etcd, or of gitcd in its place.
const STORE: &str = "store";

/// The parameters of the flags.
pub(super) struct Blueprint<'b> {
    pub(super) folder: &'b Path,
    pub(super) keys: &'b Keys,
    pub(super) assets: &'b Path,
    /// The parent control group of all pods.
    pub(super) group: &'b str,
    /// gitcd, if the host's own kube-apiserver stores its objects there.
    pub(super) gitcd: Option<PathBuf>,
}

impl Blueprint<'_> {
    /// etcd, or gitcd in its place.
    pub(super) fn store(&self) -> Program {
        let url = "http://127.0.0.1:2379";
        if let Some(gitcd) = &self.gitcd {
            let words = [
                "serve".to_owned(),
                format!("--repo={}", self.folder.join("host.git").display()),
                "--key-prefixes=default=/registry".to_owned(),
                format!("--listen-urls=default={url}"),
                format!("--advertise-client-urls=default={url}"),
            ];
            return self.program(STORE, gitcd.clone(), words);
        }
        let words = [
            format!("--data-dir={}", self.folder.join("etcd").display()),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            // This data is useless after a crash of the machine.
            "--unsafe-no-fsync".to_owned(),
        ];
        self.program(STORE, self.assets.join("etcd"), words)
    }

    pub(super) fn apiserver(&self) -> Program {
        let keys = self.keys;
        let words = [
            "--etcd-servers=http://127.0.0.1:2379".to_owned(),
            format!("--advertise-address={NODE_ADDRESS}"),
            format!("--service-cluster-ip-range={SERVICE_RANGE}"),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            flag("client-ca-file", &keys.certificate("ca")),
            flag("tls-cert-file", &keys.certificate("kube-apiserver")),
            flag("tls-private-key-file", &keys.key("kube-apiserver")),
            flag("kubelet-certificate-authority", &keys.certificate("ca")),
            flag("kubelet-client-certificate", &keys.certificate("kube-apiserver-kubelet-client")),
            flag("kubelet-client-key", &keys.key("kube-apiserver-kubelet-client")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
            flag("service-account-key-file", &keys.file("service-accounts.pub")),
            flag("service-account-signing-key-file", &keys.file("service-accounts.key")),
        ];
        self.kubernetes("kube-apiserver", words)
    }

    pub(super) fn controller_manager(&self) -> Program {
        let keys = self.keys;
        let name = "kube-controller-manager";
        let words = [
            flag("kubeconfig", &keys.kubeconfig_of(name)),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            flag("service-account-private-key-file", &keys.file("service-accounts.key")),
            flag("root-ca-file", &keys.certificate("ca")),
        ];
        self.kubernetes(name, words)
    }

    pub(super) fn scheduler(&self) -> Program {
        let name = "kube-scheduler";
        let words = [flag("kubeconfig", &self.keys.kubeconfig_of(name)), "--leader-elect=false".to_owned()];
        self.kubernetes(name, words)
    }

    /// containerd, with its data in the node's folder and all else below a private `/run`.
    pub(super) fn containerd(&self) -> anyhow::Result<Program> {
        let plugins = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"].map(Path::new);
        let plugins = plugins.into_iter().find(|folder| folder.join("ptp").is_file());
        let plugins = plugins.context("no CNI plugins (ptp, host-local, portmap) in /usr/lib/cni or /opt/cni/bin")?;
        let networks = self.folder.join("cni");
        fs::create_dir(&networks)?;
        // Every pod has a point-to-point link, so that traffic between pods through a Service passes the rules that translate
        // the replies.
        let network = json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": {
                "type": "host-local", "dataDir": self.folder.join("addresses"),
                "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}],
            }},
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ]});
        fs::write(networks.join("10-pods.conflist"), network.to_string())?;
        let config = format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{opt}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10.1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{networks}"
"#,
            root = self.folder.join("containerd").display(),
            opt = self.folder.join("opt").display(),
            plugins = plugins.display(),
            networks = networks.display(),
        );
        let file = self.folder.join("containerd.toml");
        fs::write(&file, config)?;
        Ok(self.program("containerd", "containerd".into(), [flag("config", &file)]))
    }

    pub(super) fn kubelet(&self) -> anyhow::Result<Program> {
        let state = super::state_of_pods(self.folder);
        // kubelet listens on a socket below it, whose path length is limited.
        ensure!(state.as_os_str().len() < 80, "the path {} is too long: set TMPDIR to a shorter one", state.display());
        let mut config = crate::nodes::kubelet();
        let own = json!({
            "address": NODE_ADDRESS,
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": self.keys.certificate("ca")}},
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": self.keys.certificate("kubelet-server"),
            "tlsPrivateKeyFile": self.keys.key("kubelet-server"),
            "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.group),
            "enforceNodeAllocatable": [],
            // Tests also run on machines with cgroup v1.
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%"},
            // A removed image could not be pulled again.
            "imageGCHighThresholdPercent": 100,
            "imageMaximumGCAge": "0s",
            "podLogsDir": self.folder.join("pods"),
            "volumePluginDir": self.folder.join("volume-plugins"),
            "resolvConf": self.folder.join("resolv.conf"),
            "registerNode": true,
        });
        if let (Value::Object(config), Value::Object(own)) = (&mut config, own) {
            config.extend(own);
        }
        // Names cannot be resolved: there is no DNS server.
        fs::write(self.folder.join("resolv.conf"), "")?;
        let file = self.folder.join("kubelet.json");
        fs::write(&file, config.to_string())?;
        let words = [
            flag("config", &file),
            flag("kubeconfig", &self.keys.kubeconfig_of("kubelet")),
            flag("root-dir", &state),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={NODE_ADDRESS}"),
        ];
        Ok(self.kubernetes("kubelet", words))
    }

    pub(super) fn proxy(&self) -> anyhow::Result<Program> {
        let config = json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            "clusterCIDR": POD_RANGE,
            "hostnameOverride": NODE,
            "clientConnection": {"kubeconfig": self.keys.kubeconfig_of("kube-proxy")},
            // These settings belong to the whole machine.
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        });
        let file = self.folder.join("kube-proxy.json");
        fs::write(&file, config.to_string())?;
        Ok(self.kubernetes("kube-proxy", [flag("config", &file)]))
    }

    fn kubernetes(&self, name: &str, arguments: impl IntoIterator<Item = String>) -> Program {
        self.program(name, self.assets.join(name), arguments)
    }

    fn program(&self, name: &str, file: PathBuf, arguments: impl IntoIterator<Item = String>) -> Program {
        let log = log_of(self.folder, name);
        Program { name: name.to_owned(), file, arguments: arguments.into_iter().collect(), log }
    }
}

/// The path of a program's log.
pub(super) fn log_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

fn flag(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}

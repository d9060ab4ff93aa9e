//! Which processes run with which flags: a pure function of the settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::assets::Assets;
use super::certs::{self, SERVICE_RANGE};
use super::home::Home;
use super::ports::Ports;
use super::state::{Settings, Store};

/// Keys that kube-apiserver keeps under a lease or renews all the time. They are journaled and served like all others,
/// but in the history they would only hide what people did.
pub const EPHEMERAL: &str =
    "/registry/events:/registry/masterleases:/registry/peerserverleases:/registry/leases/kube-system/apiserver-*";

/// A process of the control plane, with all that is needed to start it.
#[derive(Clone, Debug)]
pub struct Component {
    /// The program's usual name; for a part of a heaven, `HEAVEN/NAME`.
    pub name: String,
    /// Its loopback port, if it has one.
    pub port: Option<u16>,
    /// Components that must have been ready before it starts, and that are stopped after it.
    pub after: Vec<String>,
    /// Commands that must succeed before each start, in order.
    pub prepare: Vec<Invocation>,
    /// Whether a failed preparation is retried until the component's time to become ready is over.
    pub prepare_again: bool,
    /// Whether the control plane is not ready without it. Others may become ready later, and restart in between.
    pub is_essential: bool,
    /// Whether another server may be the writer of its branch. Then it waits for its turn without limit, and the
    /// components after it in its heaven wait with it; if it exits, they are stopped.
    pub takes_turns: bool,
    /// The command of the process.
    pub run: Invocation,
    /// Readiness probe.
    pub probe: Probe,
    /// Liveness probe, if there is one; the component restarts if it fails.
    pub alive: Option<Liveness>,
    /// How long it may take to exit after SIGTERM.
    pub grace: Duration,
    /// The file for its output.
    pub log: PathBuf,
}

/// A program with its arguments.
#[derive(Clone, Default)]
pub struct Invocation {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; `None` inherits ours.
    pub environment: Option<BTreeMap<String, OsString>>,
    /// Its working folder; `None` inherits ours.
    pub folder: Option<PathBuf>,
}

/// Omits the environment, which may contain secrets.
impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invocation").field("program", &self.program).field("args", &self.args).finish_non_exhaustive()
    }
}

/// A readiness or liveness probe.
#[derive(Clone, Debug)]
pub enum Probe {
    /// A GET request, successful with status 200.
    Http {
        /// The loopback port.
        port: u16,
        /// The path.
        path: String,
        /// Which server certificate is accepted.
        trust: Trust,
    },
    /// A command, successful with exit code 0.
    Run(Invocation),
    /// A TCP connection to this loopback port.
    Connect(u16),
    /// Successful once the process has run for this long.
    Running(Duration),
}

/// Which server a probe trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Plain HTTP: a loopback port of this machine needs no certificate.
    Plain,
    /// A store: mutual TLS, with the certificates in this folder.
    Store(PathBuf),
    /// A server with a certificate of the authority in this file.
    Authority(PathBuf),
    /// TLS with any certificate, as in kubelet's probes.
    Anybody,
}

/// A periodic liveness check.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// The probe.
    pub probe: Probe,
    /// The interval.
    pub every: Duration,
    /// How many failures in a row make it fail.
    pub failures: u16,
}

/// Everything that determines the processes.
#[derive(Clone, Debug)]
pub struct Blueprint<'a> {
    /// The folder of the control plane.
    pub home: &'a Home,
    /// The Kubernetes programs.
    pub assets: &'a Assets,
    /// The store's program: gitcd or etcd.
    pub store: &'a Path,
    /// The loopback ports.
    pub ports: Ports,
    /// The settings that are kept from run to run.
    pub settings: &'a Settings,
}

impl Blueprint<'_> {
    /// The components, each after those that it needs.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        vec![
            // The store first: kube-apiserver gives up after 20 seconds without it.
            match self.settings.store {
                Store::Gitcd => self.gitcd(),
                Store::Etcd => self.etcd(),
            },
            self.apiserver(vec![
                flag("authorization-mode", "Node,RBAC"),
                flag("enable-admission-plugins", "NodeRestriction"),
            ]),
            self.controller_manager(),
            self.scheduler(),
        ]
    }

    /// The components for reading a fork: its store, and a kube-apiserver that authorizes by a policy file.
    #[must_use]
    pub fn read_only(&self, policy: &Path) -> Vec<Component> {
        let rights = vec![flag("authorization-mode", "ABAC"), flag("authorization-policy-file", policy)];
        vec![Component { prepare: Vec::new(), ..self.gitcd() }, self.apiserver(rights)]
    }

    fn gitcd(&self) -> Component {
        let branch = [
            flag("repo", self.home.repository()),
            flag("data-reference-names", "default=refs/heads/main"),
            flag("metadata-reference-names", "default=refs/gitcd/metadata/main"),
            flag("committer-name", "trishanku"),
            flag("committer-email", "trishanku@localhost"),
        ];
        let keys = self.home.keys();
        let default = |path: PathBuf| {
            let mut value = OsString::from("default=");
            value.push(path);
            value
        };
        let mut init = vec!["init".into()];
        init.extend(branch.clone());
        let mut serve = vec!["serve".into()];
        serve.extend(branch);
        serve.extend([
            flag("key-prefixes", "default=/registry"),
            flag("listen-urls", format!("default={}", self.store_url())),
            flag("advertise-client-urls", format!("default={}", self.store_url())),
            flag("ephemeral-prefixes", format!("default={EPHEMERAL}")),
            flag("tls-cert", default(certs::certificate(&keys, "store"))),
            flag("tls-key", default(certs::private_key(&keys, "store"))),
            flag("tls-trusted-ca-certs", default(certs::certificate(&keys, "store-ca"))),
        ]);
        Component {
            name: "gitcd".to_owned(),
            port: Some(self.ports.store),
            after: Vec::new(),
            prepare: vec![Invocation { program: self.store.into(), args: init, ..Invocation::default() }],
            prepare_again: false,
            is_essential: true,
            takes_turns: false,
            run: Invocation { program: self.store.into(), args: serve, ..Invocation::default() },
            probe: self.store_probe(),
            alive: None,
            // Commits what is still in the journal. A kill is safe, but leaves that to the next start.
            grace: Duration::from_mins(1),
            log: self.home.log("gitcd"),
        }
    }

    fn etcd(&self) -> Component {
        // A single member never connects to itself, so any peer port will do, but it must be the same in all three flags.
        let peer = "https://127.0.0.1:0";
        let keys = self.home.keys();
        let of = |name: &str| {
            [
                flag(&format!("{name}cert-file"), certs::certificate(&keys, "store")),
                flag(&format!("{name}key-file"), certs::private_key(&keys, "store")),
                flag(&format!("{name}trusted-ca-file"), certs::certificate(&keys, "store-ca")),
                flag(&format!("{name}client-cert-auth"), "true"),
            ]
        };
        let trust = of("").into_iter().chain(of("peer-"));
        Component {
            name: "etcd".to_owned(),
            port: Some(self.ports.store),
            after: Vec::new(),
            prepare: Vec::new(),
            prepare_again: false,
            is_essential: true,
            takes_turns: false,
            run: Invocation {
                program: self.store.into(),
                args: vec![
                    flag("data-dir", self.home.etcd_data()),
                    flag("listen-client-urls", self.store_url()),
                    flag("advertise-client-urls", self.store_url()),
                    flag("listen-peer-urls", peer),
                    flag("initial-advertise-peer-urls", peer),
                    flag("initial-cluster", format!("default={peer}")),
                ]
                .into_iter()
                .chain(trust)
                .collect(),
                ..Invocation::default()
            },
            probe: self.store_probe(),
            alive: None,
            grace: Duration::from_secs(20),
            log: self.home.log("etcd"),
        }
    }

    fn apiserver(&self, rights: Vec<OsString>) -> Component {
        let keys = self.home.keys();
        let mut args = vec![
            // The only storage flags. Watch cache, compaction, consistent reads and leases keep their defaults.
            flag("etcd-servers", self.store_url()),
            flag("etcd-cafile", certs::certificate(&keys, "store-ca")),
            flag("etcd-certfile", certs::certificate(&keys, "store-client")),
            flag("etcd-keyfile", certs::private_key(&keys, "store-client")),
            flag("storage-media-type", &self.settings.storage_media_type),
            flag("bind-address", "127.0.0.1"),
            flag("secure-port", self.ports.apiserver.to_string()),
            // Without this the address of the default route is advertised, and a machine without network cannot start.
            flag("advertise-address", "127.0.0.1"),
            // Endpoints must not be loopback addresses, and no pod could reach this server through one. So the
            // `kubernetes` service has none, rather than one that is refused again every ten seconds.
            flag("endpoint-reconciler-type", "none"),
            flag("service-cluster-ip-range", SERVICE_RANGE),
            flag("allow-privileged", "true"),
            flag("client-ca-file", certs::certificate(&keys, "ca")),
            flag("tls-cert-file", certs::certificate(&keys, "kube-apiserver")),
            flag("tls-private-key-file", certs::private_key(&keys, "kube-apiserver")),
            flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            flag("service-account-key-file", certs::service_account_public_key(&keys)),
            flag("service-account-signing-key-file", certs::private_key(&keys, "service-account")),
            flag("requestheader-client-ca-file", certs::certificate(&keys, "front-proxy-ca")),
            flag("requestheader-allowed-names", certs::FRONT_PROXY_CLIENT),
            flag("requestheader-username-headers", "X-Remote-User"),
            flag("requestheader-group-headers", "X-Remote-Group"),
            flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            flag("proxy-client-cert-file", certs::certificate(&keys, "front-proxy-client")),
            flag("proxy-client-key-file", certs::private_key(&keys, "front-proxy-client")),
        ];
        args.extend(rights);
        self.kubernetes("kube-apiserver", self.settings.store.name(), self.ports.apiserver, "/readyz", args)
    }

    fn controller_manager(&self) -> Component {
        let name = "kube-controller-manager";
        let keys = self.home.keys();
        let mut args = self.client_args(name, self.ports.controller_manager);
        args.extend([
            flag("use-service-account-credentials", "true"),
            flag("service-account-private-key-file", certs::private_key(&keys, "service-account")),
            flag("root-ca-file", certs::certificate(&keys, "ca")),
            flag("cluster-signing-cert-file", certs::certificate(&keys, "ca")),
            flag("cluster-signing-key-file", certs::private_key(&keys, "ca")),
        ]);
        self.kubernetes(name, "kube-apiserver", self.ports.controller_manager, "/healthz", args)
    }

    fn scheduler(&self) -> Component {
        let name = "kube-scheduler";
        let args = self.client_args(name, self.ports.scheduler);
        self.kubernetes(name, "kube-apiserver", self.ports.scheduler, "/healthz", args)
    }

    /// The common flags of kube-apiserver's two clients.
    fn client_args(&self, name: &str, port: u16) -> Vec<OsString> {
        let keys = self.home.keys();
        let kubeconfig = self.home.component_kubeconfig(name);
        vec![
            flag("kubeconfig", &kubeconfig),
            flag("authentication-kubeconfig", &kubeconfig),
            flag("authorization-kubeconfig", &kubeconfig),
            flag("bind-address", "127.0.0.1"),
            flag("secure-port", port.to_string()),
            flag("tls-cert-file", certs::certificate(&keys, name)),
            flag("tls-private-key-file", certs::private_key(&keys, name)),
            // There is only one of each, and a lease renewed every two seconds would drown the history.
            flag("leader-elect", "false"),
        ]
    }

    fn kubernetes(&self, name: &str, after: &str, port: u16, path: &str, args: Vec<OsString>) -> Component {
        let trust = Trust::Authority(certs::certificate(&self.home.keys(), "ca"));
        Component {
            name: name.to_owned(),
            port: Some(port),
            after: vec![after.to_owned()],
            prepare: Vec::new(),
            prepare_again: false,
            is_essential: true,
            takes_turns: false,
            run: Invocation { program: self.assets.program(name), args, ..Invocation::default() },
            probe: Probe::Http { port, path: path.to_owned(), trust },
            alive: None,
            grace: Duration::from_secs(20),
            log: self.home.log(name),
        }
    }

    fn store_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.store)
    }

    fn store_probe(&self) -> Probe {
        Probe::Http { port: self.ports.store, path: "/health".to_owned(), trust: Trust::Store(self.home.keys()) }
    }
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components(settings: &Settings) -> Vec<Component> {
        let dir = tempfile::tempdir().unwrap();
        for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] {
            std::fs::write(dir.path().join(program), "").unwrap();
        }
        Blueprint {
            home: &Home::at(Path::new("/home/me/a plane")),
            assets: &Assets::find(Some(dir.path())).unwrap(),
            store: Path::new("/bin/gitcd"),
            ports: Ports { store: 1, apiserver: 2, controller_manager: 3, scheduler: 4, audit: 5 },
            settings,
        }
        .components()
    }

    #[test]
    fn the_apiserver_gets_no_storage_flag_but_the_address_and_the_media_type() {
        let components = components(&Settings::default());
        let storage: Vec<_> = components[1]
            .run
            .args
            .iter()
            .filter_map(|arg| arg.to_str())
            .filter(|arg| {
                ["--etcd", "--storage", "--watch-cache", "--default-watch", "--feature"]
                    .iter()
                    .any(|prefix| arg.starts_with(prefix))
            })
            // Flags about certificates are not compared.
            .filter(|arg| !arg.contains("file="))
            .collect();
        assert_eq!(storage, ["--etcd-servers=https://127.0.0.1:1", "--storage-media-type=application/json"]);
    }

    #[test]
    fn the_store_comes_first_and_is_initialised_on_the_same_branch() {
        let components = components(&Settings::default());
        let gitcd = &components[0];
        let init = &gitcd.prepare[0];
        assert_eq!(init.args[1..], gitcd.run.args[1..init.args.len()]);
        assert_eq!(init.args[1], "--repo=/home/me/a plane/repo.git");
    }

    #[test]
    fn etcd_can_stand_in_for_gitcd() {
        let settings = Settings { store: Store::Etcd, ..Settings::default() };
        assert_eq!(components(&settings)[0].name, "etcd");
    }
}

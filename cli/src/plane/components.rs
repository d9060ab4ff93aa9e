//! What is run and with which flags: a pure function of the settings.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::assets::Assets;
use super::certs::{self, SERVICE_RANGE};
use super::home::Home;
use super::ports::Ports;
use super::state::{Settings, Store};

/// What kube-apiserver keeps under a lease or renews all the time. It is journaled and served like everything else, but a
/// history of it would only hide what people did.
pub const EPHEMERAL: &str =
    "/registry/events:/registry/masterleases:/registry/peerserverleases:/registry/leases/kube-system/apiserver-*";

/// One process of the control plane, ready to be started.
#[derive(Clone, Debug)]
pub struct Component {
    /// The program's usual name; that of a heaven and a slash before it, if it is a part of one.
    pub name: String,
    /// Its loopback port, if it has one.
    pub port: Option<u16>,
    /// The components that have to have been ready before it is started, and that are ended after it.
    pub after: Vec<String>,
    /// What has to succeed before each start, in this order.
    pub prepare: Vec<Invocation>,
    /// Whether a preparation that fails is tried again for as long as the component may take to get ready.
    pub prepare_again: bool,
    /// Whether nothing is ready without it. Another one may take its time, and end in between.
    pub is_essential: bool,
    /// Whether another server may be the writer of its branch. It may wait for its turn, for as long as that takes, and then what comes after it in its
    /// heaven waits with it; if it ends, so does that.
    pub takes_turns: bool,
    /// The process itself.
    pub run: Invocation,
    /// How to learn that it is ready.
    pub probe: Probe,
    /// How to learn that it still lives, if there is a way; it is started anew if it does not.
    pub alive: Option<Liveness>,
    /// How long it may take to end when asked to.
    pub grace: Duration,
    /// Where its output goes.
    pub log: PathBuf,
}

/// A program with its arguments.
#[derive(Clone, Default)]
pub struct Invocation {
    /// The executable.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment; `None` is ours.
    pub environment: Option<BTreeMap<String, OsString>>,
    /// The folder that it works in; `None` is ours.
    pub folder: Option<PathBuf>,
}

/// Without the values of variables, which may be secrets.
impl std::fmt::Debug for Invocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Invocation").field("program", &self.program).field("args", &self.args).finish_non_exhaustive()
    }
}

/// How to learn that a component is ready, or lives.
#[derive(Clone, Debug)]
pub enum Probe {
    /// Asking for this path, whose answer 200 means "yes".
    Http {
        /// The loopback port.
        port: u16,
        /// The path.
        path: String,
        /// Whom to believe that it is the component who answers.
        trust: Trust,
    },
    /// Running this, which ends well if the component is well.
    Run(Invocation),
    /// Connecting to this loopback port.
    Connect(u16),
    /// It is, once it has been running for this long.
    Running(Duration),
}

/// Whom a probe believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Plain HTTP: there is nobody else on this machine's loopback port.
    Plain,
    /// A store that has a certificate of its own authority, and wants to see one; all are in this folder.
    Store(PathBuf),
    /// Who has a certificate from the authority in this file.
    Authority(PathBuf),
    /// TLS with any certificate, as kubelet's probes do.
    Anybody,
}

/// Looking whether a component lives.
#[derive(Clone, Debug)]
pub struct Liveness {
    /// How to look.
    pub probe: Probe,
    /// How often.
    pub every: Duration,
    /// How many looks in a row have to fail.
    pub failures: u16,
}

/// Everything that decides what is run.
#[derive(Clone, Debug)]
pub struct Blueprint<'a> {
    /// Where the files are.
    pub home: &'a Home,
    /// Where the Kubernetes programs are.
    pub assets: &'a Assets,
    /// The program of the store: gitcd or etcd.
    pub store: &'a Path,
    /// The loopback ports.
    pub ports: Ports,
    /// What is kept from run to run.
    pub settings: &'a Settings,
}

impl Blueprint<'_> {
    /// The components, each after those that it needs.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        vec![
            // First the store: kube-apiserver gives up after 20 seconds without it.
            match self.settings.store {
                Store::Gitcd => self.gitcd(),
                Store::Etcd => self.etcd(),
            },
            self.apiserver(),
            self.controller_manager(),
            self.scheduler(),
        ]
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
            // It still has to commit what the journal holds. Killing it is safe, but leaves that to the next start.
            grace: Duration::from_mins(1),
            log: self.home.log("gitcd"),
        }
    }

    fn etcd(&self) -> Component {
        // A single member never talks to itself, so any peer port will do; it has to be the same in all three places.
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

    fn apiserver(&self) -> Component {
        let keys = self.home.keys();
        let args = vec![
            // The only storage flags. Watch cache, compaction, consistent reads and leases are as they come.
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
            flag("authorization-mode", "Node,RBAC"),
            flag("enable-admission-plugins", "NodeRestriction"),
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

    /// The flags that the two clients of kube-apiserver have in common.
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
            // There is one of each, and a lease renewed every two seconds would drown the history.
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
            ports: Ports { store: 1, apiserver: 2, controller_manager: 3, scheduler: 4 },
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
            // By whom it is trusted, and whom it trusts.
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

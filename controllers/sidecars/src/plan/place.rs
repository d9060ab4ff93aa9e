//! Where a plan is going to run.

use trishanku_api as api;

/// Images that count where a manifest names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// etcd, for events.
    pub etcd: String,
    /// Git, for a script of the user.
    pub git: String,
    /// gitcd.
    pub gitcd: String,
    /// kube-apiserver.
    pub apiserver: String,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            etcd: "registry.k8s.io/etcd:3.6.6-0".to_owned(),
            git: "docker.io/alpine/git:v2.49.1".to_owned(),
            gitcd: concat!("ghcr.io/trishanku-org/gitcd:", env!("CARGO_PKG_VERSION")).to_owned(),
            apiserver: "registry.k8s.io/kube-apiserver:v1.36.3".to_owned(),
        }
    }
}

impl Images {
    pub(super) fn choose(given: Option<&api::Image>, default: &str) -> super::Image {
        let given = given.cloned().unwrap_or_default();
        super::Image { name: given.image.unwrap_or_else(|| default.to_owned()), pull: given.image_pull_policy }
    }
}

/// Paths and ports: those of a pod are published, those of processes on a machine are each one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The home folder, in which the repository is.
    pub home: String,
    /// Below it, a folder for each Secret.
    pub secrets: String,
    /// The entry points.
    pub entry_points: String,
    /// Where servers keep what goes with them.
    pub state: String,
    /// Where kube-apiserver listens: everywhere in a pod, where kubelet has to look at it.
    pub address: String,
    /// The ports.
    pub ports: Ports,
    /// A folder with the certificates by which servers of one machine know each other, where others could reach their loopback ports.
    pub trust: Option<Trust>,
}

/// Where on a machine the certificates of [`Place::trust`] are. In a pod nobody else reaches loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust(pub String);

impl Trust {
    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    /// Whom servers and clients of stores trust.
    pub(super) fn store_authority(&self) -> String {
        self.file("store-ca.crt")
    }

    /// Certificate and key of a store.
    pub(super) fn store(&self) -> (String, String) {
        (self.file("store.crt"), self.file("store.key"))
    }

    /// Certificate and key of those who may use a store.
    pub(super) fn store_client(&self) -> (String, String) {
        (self.file("store-client.crt"), self.file("store-client.key"))
    }

    /// The flags by which kube-apiserver knows those who ask for others, and is known by servers that extend it.
    pub(super) fn front_proxy(&self) -> [(&'static str, String); 7] {
        [
            ("requestheader-client-ca-file", self.file("front-proxy-ca.crt")),
            ("requestheader-allowed-names", "front-proxy-client".to_owned()),
            ("requestheader-username-headers", "X-Remote-User".to_owned()),
            ("requestheader-group-headers", "X-Remote-Group".to_owned()),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
            ("proxy-client-cert-file", self.file("front-proxy-client.crt")),
            ("proxy-client-key-file", self.file("front-proxy-client.key")),
        ]
    }
}

/// Where servers listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// gitcd, on loopback.
    pub gitcd: u16,
    /// The etcd for events, on loopback.
    pub events: u16,
    /// What that etcd wants to have for other members, on loopback.
    pub events_peers: u16,
    /// kube-apiserver.
    pub apiserver: u16,
}

impl Default for Ports {
    /// The published ones.
    fn default() -> Self {
        Self { gitcd: 2479, events: 2379, events_peers: 2380, apiserver: 6443 }
    }
}

impl Place {
    /// A pod, with the published paths and ports.
    pub fn pod() -> Self {
        Self {
            home: "/root".to_owned(),
            secrets: "/.trishanku/secrets".to_owned(),
            entry_points: "/.trishanku/entrypoints".to_owned(),
            state: "/.trishanku/state".to_owned(),
            address: "0.0.0.0".to_owned(),
            ports: Ports::default(),
            trust: None,
        }
    }

    /// The same with other ports.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// The repository.
    pub fn repository(&self) -> String {
        format!("{}/repo", self.home)
    }

    /// Whether nobody from elsewhere reaches it.
    pub(super) fn is_loopback(&self) -> bool {
        self.address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn secret(&self, folder: &str) -> String {
        format!("{}/{folder}", self.secrets)
    }

    pub(super) fn gitcd(&self) -> String {
        self.loopback(self.ports.gitcd)
    }

    pub(super) fn events(&self) -> String {
        self.loopback(self.ports.events)
    }

    pub(super) fn loopback(&self, port: u16) -> String {
        let scheme = if self.trust.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}")
    }
}

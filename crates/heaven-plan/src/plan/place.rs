//! The environment of a plan: images, paths and ports.

use trishanku_api as api;

/// Default images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// etcd, for events.
    pub etcd: String,
    /// git, for user scripts.
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

/// Paths and ports. Those of pods are published; on a machine, each heaven has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The home folder, which contains the repository.
    pub home: String,
    /// The parent of the folders with Secrets.
    pub secrets: String,
    /// The folder of the entry points.
    pub entry_points: String,
    /// The folder of data that does not outlive the pod.
    pub state: String,
    /// Listen address of kube-apiserver: all interfaces in a pod, for kubelet's probes.
    pub address: String,
    /// The ports.
    pub ports: Ports,
    /// Certificates of the servers on loopback: other users of a machine, and the user's containers of a pod, reach them.
    pub trust: Trust,
    /// The field of the pod that names its replica, if each replica may have a branch of its own: see
    /// [`Workload::REPLICAS`](crate::workload::Workload::REPLICAS).
    pub replica: Option<&'static str>,
}

/// The folder with the certificates of stores and their clients, which give access to all data, past kube-apiserver's
/// authorization.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Supplied, together with those of a front proxy.
    Supplied(String),
    /// `gitcd init` creates them; only containers that need them mount the folder.
    Created(String),
}

impl Trust {
    /// The folder, if the plan has to create and mount it.
    pub(super) fn created(&self) -> Option<&str> {
        match self {
            Self::Created(folder) => Some(folder),
            Self::Supplied(_) => None,
        }
    }

    fn file(&self, name: &str) -> String {
        let (Self::Supplied(folder) | Self::Created(folder)) = self;
        format!("{folder}/{name}")
    }

    /// The authority of stores and their clients.
    pub(super) fn store_authority(&self) -> String {
        self.file("store-ca.crt")
    }

    /// Certificate and key of a store.
    pub(super) fn store(&self) -> (String, String) {
        (self.file("store.crt"), self.file("store.key"))
    }

    /// Certificate and key of a store's clients.
    pub(super) fn store_client(&self) -> (String, String) {
        (self.file("store-client.crt"), self.file("store-client.key"))
    }

    /// kube-apiserver's flags for the request header authority, and for its own client certificate at aggregated API
    /// servers.
    pub(super) fn front_proxy(&self) -> Vec<(&'static str, String)> {
        if self.created().is_some() {
            return Vec::new();
        }
        vec![
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

/// Listen ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// gitcd, on loopback.
    pub gitcd: u16,
    /// The etcd for events, on loopback.
    pub events: u16,
    /// The peer port that this etcd requires, on loopback.
    pub events_peers: u16,
    /// kube-apiserver.
    pub apiserver: u16,
}

impl Default for Ports {
    /// The published ports.
    fn default() -> Self {
        Self { gitcd: 2479, events: 2379, events_peers: 2380, apiserver: 6443 }
    }
}

impl Place {
    /// The environment of a pod, with the published paths and ports.
    pub fn pod() -> Self {
        Self {
            home: "/root".to_owned(),
            secrets: "/.trishanku/secrets".to_owned(),
            entry_points: "/.trishanku/entrypoints".to_owned(),
            state: "/.trishanku/state".to_owned(),
            address: "0.0.0.0".to_owned(),
            ports: Ports::default(),
            trust: Trust::Created("/.trishanku/store".to_owned()),
            replica: None,
        }
    }

    /// Lets each replica have a branch of its own, named by this field of its pod.
    #[must_use]
    pub fn with_replica(mut self, field: Option<&'static str>) -> Self {
        self.replica = field;
        self
    }

    /// Changes the ports.
    #[must_use]
    pub fn with_ports(mut self, ports: Ports) -> Self {
        self.ports = ports;
        self
    }

    /// The path of the repository.
    pub fn repository(&self) -> String {
        format!("{}/repo", self.home)
    }

    /// Whether only this machine can reach the servers.
    pub(super) fn is_loopback(&self) -> bool {
        self.address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }

    pub(super) fn secret(&self, folder: &str) -> String {
        format!("{}/{folder}", self.secrets)
    }

    pub(super) fn gitcd(&self) -> String {
        loopback(self.ports.gitcd)
    }

    pub(super) fn events(&self) -> String {
        loopback(self.ports.events)
    }

    pub(super) fn event_peers(&self) -> String {
        loopback(self.ports.events_peers)
    }
}

/// The URL of a server on loopback.
fn loopback(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

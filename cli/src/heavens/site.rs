//! The folder and the ports of a heaven on this machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use trishanku_heaven_plan::plan::{Place, Ports, Trust};

use crate::plane::Home;

/// The folders and ports of a heaven, or of a merge.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The prefix of its components' names.
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) place: Place,
    ports: BTreeMap<String, u16>,
}

/// The servers that every heaven may have.
const SERVERS: [&str; 4] = ["gitcd", "events-etcd", "events-etcd-peers", "kube-apiserver"];
/// gitcd's listener for audit events.
const AUDIT: &str = "audit";
/// The Git host.
const HOST: &str = "git-host";

impl Site {
    /// The names of a heaven's ports, including the `further` ones.
    pub(super) fn port_names(name: &str, has_host: bool, further: &[String]) -> Vec<String> {
        let host = has_host.then_some(HOST);
        let servers = SERVERS.into_iter().chain([AUDIT]).chain(host).map(ToOwned::to_owned);
        servers.chain(further.iter().cloned()).map(|server| format!("{name}/{server}")).collect()
    }

    /// Creates the site of a heaven from the allotted ports.
    pub(super) fn new(home: &Home, name: &str, allotted: &BTreeMap<String, u16>) -> Self {
        let dir = home.heavens().join(name);
        let own =
            |(port, number): (&String, &u16)| Some((port.strip_prefix(name)?.strip_prefix('/')?.to_owned(), *number));
        let ports: BTreeMap<String, u16> = allotted.iter().filter_map(own).collect();
        let port = |server: &str| ports.get(server).copied().unwrap_or_default();
        let [gitcd, events, events_peers, apiserver] = SERVERS.map(port);
        let path = |folder: &str| dir.join(folder).display().to_string();
        let place = Place {
            home: path("root"),
            secrets: path("secrets"),
            entry_points: path("entrypoints"),
            state: path("state"),
            address: "127.0.0.1".to_owned(),
            ports: Ports { gitcd, events, events_peers, apiserver },
            trust: Trust::Supplied(home.keys().display().to_string()),
            replica: None,
        };
        Self { name: name.to_owned(), dir, place, ports }
    }

    /// A port of this heaven; 0 if it has no such port.
    pub(super) fn port(&self, server: &str) -> u16 {
        self.ports.get(server).copied().unwrap_or_default()
    }

    /// The port for audit events.
    pub(super) fn audit_port(&self) -> u16 {
        self.port(AUDIT)
    }

    /// The port of the Git host.
    pub(super) fn host_port(&self) -> u16 {
        self.port(HOST)
    }

    /// The full name of a component.
    pub(super) fn component(&self, step: &str) -> String {
        format!("{}/{step}", self.name)
    }

    /// The folder that its programs use in place of `/tmp`.
    pub(super) fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }
}

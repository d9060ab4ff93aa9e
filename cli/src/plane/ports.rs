//! Loopback ports: chosen once, kept while they are free.
//!
//! Seconds pass between the choice of a port and the start of its server. Until then, nothing listens on it, and another
//! control plane could choose it, too. On Linux, each port is therefore reserved for as long as its control plane runs: by a
//! Unix socket with an abstract name, which belongs to the same network namespace as the port and ends with its process.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener},
};

use serde::{Deserialize, Serialize};

/// The loopback ports of one control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// gitcd's (or etcd's) client port.
    pub store: u16,
    /// kube-apiserver's secure port.
    pub apiserver: u16,
    /// kube-controller-manager's secure port.
    pub controller_manager: u16,
    /// kube-scheduler's secure port.
    pub scheduler: u16,
    /// gitcd's port for audit events; 0 if a state file of an earlier version has none.
    #[serde(default)]
    pub audit: u16,
}

/// A port of the previous run that another program uses now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The server.
    pub component: String,
    /// The old port.
    pub from: u16,
    /// The new port.
    pub to: u16,
}

/// The chosen ports.
#[derive(Debug)]
pub struct Allotted<P> {
    /// The ports.
    pub ports: P,
    /// Those that are not the previous ones.
    pub moved: Vec<Moved>,
    /// Keeps other control planes from choosing them.
    pub reservations: Reservations,
}

/// Reserved ports: no other control plane of this machine chooses them until this is dropped. Only on Linux.
#[derive(Debug, Default)]
pub struct Reservations(#[cfg(target_os = "linux")] Vec<UnixListener>);

impl Reservations {
    /// Binds a port for a moment, and reserves it.
    fn claim(&mut self, port: u16) -> io::Result<TcpListener> {
        #[cfg(target_os = "linux")]
        {
            let address = SocketAddr::from_abstract_name(format!("trishanku-port-{port}"))?;
            let reservation = UnixListener::bind_addr(&address)?;
            let bound = listen(port)?;
            self.0.push(reservation);
            Ok(bound)
        }
        #[cfg(not(target_os = "linux"))]
        listen(port)
    }
}

impl Ports {
    /// Chooses the ports of the previous run where they are free, otherwise new ones.
    ///
    /// All ports are bound while choosing, so no two are equal; on return they are only reserved.
    ///
    /// # Errors
    /// If the system has no free loopback port.
    pub fn choose(previous: Option<Self>) -> io::Result<Allotted<Self>> {
        let named = |ports: Self| {
            let all = [ports.store, ports.apiserver, ports.controller_manager, ports.scheduler, ports.audit];
            NAMES.iter().map(ToString::to_string).zip(all).filter(|(_, port)| *port > 0).collect()
        };
        let Allotted { ports, moved, reservations } =
            allot(&NAMES.map(ToOwned::to_owned), &previous.map(named).unwrap_or_default())?;
        let [store, apiserver, controller_manager, scheduler, audit] = NAMES.map(|name| ports[name]);
        Ok(Allotted { ports: Self { store, apiserver, controller_manager, scheduler, audit }, moved, reservations })
    }
}

const NAMES: [&str; 5] =
    ["the store", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "the store's audit listener"];

/// Chooses a port for each name: that of the previous run if it is free, otherwise another one.
///
/// All ports are bound while choosing, so no two are equal; on return they are only reserved.
///
/// # Errors
/// If the system has no free loopback port.
pub fn allot(names: &[String], previous: &BTreeMap<String, u16>) -> io::Result<Allotted<BTreeMap<String, u16>>> {
    let (mut held, mut moved, mut ports) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut reservations = Reservations::default();
    // Names with a previous port come first, so that no other name gets it.
    let (known, new): (Vec<_>, Vec<_>) = names.iter().partition(|name| previous.contains_key(*name));
    for name in known.into_iter().chain(new) {
        let before = previous.get(name).copied();
        let kept = before.and_then(|port| reservations.claim(port).ok());
        let listener = kept.map_or_else(|| claim_any(&mut reservations), Ok)?;
        let port = listener.local_addr()?.port();
        if let Some(from) = before.filter(|&from| from != port) {
            moved.push(Moved { component: name.clone(), from, to: port });
        }
        held.push(listener);
        ports.insert(name.clone(), port);
    }
    Ok(Allotted { ports, moved, reservations })
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Claims a free port outside the range for outgoing connections.
///
/// While a component restarts, its port is free and others try to connect to it. A port from the system's range could
/// then become the local end of a connection, even of one to itself, and the component could not bind it again.
fn claim_any(reservations: &mut Reservations) -> io::Result<TcpListener> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let candidates = candidates(range.as_deref().unwrap_or_default());
    // A random start keeps control planes apart that start at the same time.
    let start = RandomState::new().hash_one(0) as usize;
    let count = candidates.len();
    (0..count)
        .map(|step| candidates.start + (start.wrapping_add(step) % count) as u16)
        .find_map(|port| reservations.claim(port).ok())
        .map_or_else(|| listen(0), Ok)
}

/// The ports outside the system's range (two numbers) for outgoing connections that ordinary users may bind.
fn candidates(outgoing: &str) -> Range<u16> {
    let mut bounds = outgoing.split_ascii_whitespace().map(str::parse);
    match (bounds.next(), bounds.next()) {
        (Some(Ok(low)), _) if low > 20_000 => 16_384..low,
        (Some(Ok(low)), _) if low > 2048 => 1024..low,
        (_, Some(Ok(high))) if high < 65_000 => high + 1..65_535,
        _ => 16_384..32_768,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_outside_the_range_of_outgoing_connections() {
        assert_eq!(candidates("32768\t60999\n"), 16_384..32_768);
        assert_eq!(candidates("15000 65000"), 1024..15_000);
        assert_eq!(candidates("1024 60999"), 61_000..65_535);
        assert_eq!(candidates(""), 16_384..32_768);
    }

    #[test]
    fn free_ports_are_kept_and_taken_ones_are_replaced_with_a_notice() {
        let choose = || {
            let Allotted { ports, moved, reservations } = Ports::choose(None).unwrap();
            assert!(moved.is_empty());
            drop(reservations);
            // Another process may bind it first.
            Some((ports, TcpListener::bind((Ipv4Addr::LOCALHOST, ports.apiserver)).ok()?))
        };
        let (first, taken) =
            std::iter::repeat_with(choose).take(20).flatten().next().expect("a port is free for a moment");
        let Allotted { ports: second, moved, .. } = Ports::choose(Some(first)).unwrap();
        drop(taken);
        assert_ne!(second.apiserver, first.apiserver);
        let notice = Moved { component: "kube-apiserver".to_owned(), from: first.apiserver, to: second.apiserver };
        // Another process may have bound one of the other ports, so this is not an equality.
        assert!(moved.contains(&notice), "{moved:?}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_control_plane_does_not_get_the_ports_of_one_whose_servers_start() {
        let first = Ports::choose(None).unwrap();
        let second = Ports::choose(Some(first.ports)).unwrap();
        assert_eq!(second.moved.len(), NAMES.len(), "{:?}", second.moved);
        // They end with their owner.
        drop(first.reservations);
        let third = Ports::choose(Some(first.ports)).unwrap();
        // Another process may have bound one in the meantime.
        assert!(third.moved.len() < NAMES.len(), "{:?}", third.moved);
    }
}

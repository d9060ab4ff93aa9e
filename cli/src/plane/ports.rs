//! Loopback ports: chosen once, kept while they are free.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

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

impl Ports {
    /// Chooses the ports of the previous run where they are free, otherwise new ones.
    ///
    /// All ports are bound while choosing, so no two are equal; they are released on return.
    ///
    /// # Errors
    /// If the system has no free loopback port.
    pub fn choose(previous: Option<Self>) -> io::Result<(Self, Vec<Moved>)> {
        let named = |ports: Self| {
            let all = [ports.store, ports.apiserver, ports.controller_manager, ports.scheduler, ports.audit];
            NAMES.iter().map(ToString::to_string).zip(all).filter(|(_, port)| *port > 0).collect()
        };
        let (ports, moved) = allot(&NAMES.map(ToOwned::to_owned), &previous.map(named).unwrap_or_default())?;
        let [store, apiserver, controller_manager, scheduler, audit] = NAMES.map(|name| ports[name]);
        Ok((Self { store, apiserver, controller_manager, scheduler, audit }, moved))
    }
}

const NAMES: [&str; 5] =
    ["the store", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "the store's audit listener"];

/// Chooses a port for each name: that of the previous run if it is free, otherwise another one.
///
/// All ports are bound while choosing, so no two are equal; they are released on return.
///
/// # Errors
/// If the system has no free loopback port.
pub fn allot(names: &[String], previous: &BTreeMap<String, u16>) -> io::Result<(BTreeMap<String, u16>, Vec<Moved>)> {
    let (mut held, mut moved, mut ports) = (Vec::new(), Vec::new(), BTreeMap::new());
    // Names with a previous port come first, so that no other name gets it.
    let (known, new): (Vec<_>, Vec<_>) = names.iter().partition(|name| previous.contains_key(*name));
    for name in known.into_iter().chain(new) {
        let before = previous.get(name).copied();
        let kept = before.and_then(|port| listen(port).ok());
        let listener = kept.map_or_else(listen_anywhere, Ok)?;
        let port = listener.local_addr()?.port();
        if let Some(from) = before.filter(|&from| from != port) {
            moved.push(Moved { component: name.clone(), from, to: port });
        }
        held.push(listener);
        ports.insert(name.clone(), port);
    }
    Ok((ports, moved))
}

fn listen(port: u16) -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port))
}

/// Binds a free port outside the range for outgoing connections.
///
/// While a component restarts, its port is free and others try to connect to it. A port from the system's range could
/// then become the local end of a connection, even of one to itself, and the component could not bind it again.
fn listen_anywhere() -> io::Result<TcpListener> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let candidates = candidates(range.as_deref().unwrap_or_default());
    // A random start keeps control planes apart that start at the same time.
    let start = RandomState::new().hash_one(0) as usize;
    let count = candidates.len();
    (0..count)
        .map(|step| candidates.start + (start.wrapping_add(step) % count) as u16)
        .find_map(|port| listen(port).ok())
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
            let (chosen, moved) = Ports::choose(None).unwrap();
            assert!(moved.is_empty());
            // Another process may bind it first.
            Some((chosen, TcpListener::bind((Ipv4Addr::LOCALHOST, chosen.apiserver)).ok()?))
        };
        let (first, taken) =
            std::iter::repeat_with(choose).take(20).flatten().next().expect("a port is free for a moment");
        let (second, moved) = Ports::choose(Some(first)).unwrap();
        drop(taken);
        assert_ne!(second.apiserver, first.apiserver);
        let notice = Moved { component: "kube-apiserver".to_owned(), from: first.apiserver, to: second.apiserver };
        // Another process may have bound one of the other ports, so this is not an equality.
        assert!(moved.contains(&notice), "{moved:?}");
    }
}

//! Ports: handles for probes and hooks, and numbers that are unique in the pod.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::brand::Brand;
use super::handlers::connections;

mod sealed {
    pub trait Protocol {
        /// The field `protocol`; `None` for the default.
        const FIELD: Option<&'static str>;
    }
}

/// The protocol of a port: [`Tcp`], [`Udp`], [`Sctp`].
pub trait Protocol: sealed::Protocol {}

/// The protocol of a [`Port`] that probes and hooks can use.
#[derive(Clone, Copy, Debug)]
pub enum Tcp {}
impl sealed::Protocol for Tcp {
    const FIELD: Option<&'static str> = None;
}
impl Protocol for Tcp {}

/// The protocol of a [`Port`] without connections, which kubelet cannot probe.
#[derive(Clone, Copy, Debug)]
pub enum Udp {}
impl sealed::Protocol for Udp {
    const FIELD: Option<&'static str> = Some("UDP");
}
impl Protocol for Udp {}

/// The protocol of a [`Port`] that kubelet cannot probe. Not all networks support it.
#[derive(Clone, Copy, Debug)]
pub enum Sctp {}
impl sealed::Protocol for Sctp {
    const FIELD: Option<&'static str> = Some("SCTP");
}
impl Protocol for Sctp {}

/// A port that a container declares. The container's probes and hooks need the handle of a TCP port; the
/// [`number`](Self::number) can be used anywhere.
///
/// It borrows the pod through its container, so it cannot be used once the next container is under construction.
#[derive(Debug)]
pub struct Port<'c, 'p, T = Tcp> {
    number: u16,
    protocol: PhantomData<T>,
    _container: PhantomData<&'c mut ()>,
    _brand: Brand<'p>,
}

impl<'p, T: Protocol> Port<'_, 'p, T> {
    pub(super) fn new(number: u16, brand: Brand<'p>) -> Self {
        Self { number, protocol: PhantomData, _container: PhantomData, _brand: brand }
    }

    /// Returns the number, for arguments and addresses.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns whether a declaration is that of this port, within one container.
    pub(super) fn is(&self, declared: &ContainerPort) -> bool {
        declared.container_port == i32::from(self.number) && protocol(declared) == protocol_of::<T>()
    }
}

/// Returns the declaration of a port.
pub(super) fn declaration<T: Protocol>(name: String, number: u16) -> ContainerPort {
    let protocol = T::FIELD.map(str::to_owned);
    ContainerPort { name: Some(name), container_port: number.into(), protocol, ..ContainerPort::default() }
}

/// Displays the number.
impl<T: Protocol> fmt::Display for Port<'_, '_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(formatter)
    }
}

const TCP: &str = "TCP";

/// Returns the protocol of a declared port, with the API server's default.
pub(super) fn protocol(port: &ContainerPort) -> &str {
    port.protocol.as_deref().unwrap_or(TCP)
}

/// Returns the name of a protocol in the API.
pub(super) fn protocol_of<T: Protocol>() -> &'static str {
    T::FIELD.unwrap_or(TCP)
}

/// Returns number and protocol for readers: `6443`, `53/UDP`.
pub(super) fn shown(number: i32, protocol: &str) -> String {
    if protocol == TCP { number.to_string() } else { format!("{number}/{protocol}") }
}

/// Returns a text by which readers and programs find the port in its container: [`shown`], which is not unique, so if another port has
/// it, then the name, or else the port of the node, as in `127.0.0.1:9000:8080`.
pub(super) fn item(port: &ContainerPort, container: &Container) -> String {
    let shown_of = |port: &ContainerPort| shown(port.container_port, protocol(port));
    let shown = shown_of(port);
    if container.ports.iter().flatten().filter(|other| shown_of(other) == shown).count() < 2 {
        return shown;
    }
    let address = port.host_ip.as_deref().map(|address| format!("{address}:")).unwrap_or_default();
    match (&port.name, port.host_port) {
        (Some(name), _) => name.clone(),
        (None, Some(host_port)) => format!("{address}{host_port}:{shown}"),
        (None, None) => shown,
    }
}

/// Returns whether a port that probes or hooks use is this one.
pub(super) fn is_probed(wanted: &IntOrString, declared: &ContainerPort) -> bool {
    let is_named = match wanted {
        IntOrString::Int(number) => declared.container_port == *number,
        IntOrString::String(name) => declared.name.as_ref() == Some(name),
    };
    is_named && protocol(declared) == TCP
}

/// Ports of a node's own programs: etcd, kube-apiserver, kubelet, kube-proxy, kube-controller-manager, kube-scheduler. A pod
/// in the node's network avoids them where it has a choice.
const NODE: [i32; 11] = [2379, 2380, 2381, 6443, 10248, 10249, 10250, 10255, 10256, 10257, 10259];

/// Returns whether a container other than `name` declares the number with this protocol, or is probed there or has a hook there.
///
/// The container itself does not count: if it is already in the template, its number is as free, and lower ones are as taken,
/// as when it was injected.
pub(super) fn is_taken(number: u16, of_protocol: &str, name: &str, spec: &PodSpec) -> bool {
    let number = i32::from(number);
    // In the node's network, Kubernetes requires that host ports equal these.
    let declares = |port: &ContainerPort| protocol(port) == of_protocol && port.container_port == number;
    let is_tcp = of_protocol == TCP;
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let is_others = all.filter(|container| container.name != name).any(|container| {
        container.ports.iter().flatten().any(declares)
            || (is_tcp && connections(container).any(|connection| connection.port == IntOrString::Int(number)))
    });
    is_others || (is_tcp && host_network(spec) && NODE.contains(&number))
}

pub(super) fn host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true)
}

//! Ports: handles for probes, and numbers that are unique in the pod.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::brand::Brand;

/// A TCP port that a container declares. The container's probes need the handle; the [`number`](Self::number) can be used
/// anywhere.
///
/// It borrows the pod through its container, so it cannot be used once the next container is under construction.
#[derive(Debug)]
pub struct Port<'c, 'p> {
    number: u16,
    _container: PhantomData<&'c mut ()>,
    _brand: Brand<'p>,
}

impl<'p> Port<'_, 'p> {
    pub(super) fn new(number: u16, brand: Brand<'p>) -> Self {
        Self { number, _container: PhantomData, _brand: brand }
    }

    /// Returns the number, for arguments and addresses.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Displays the number.
impl fmt::Display for Port<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(formatter)
    }
}

/// Ports of a node's own programs: etcd, kube-apiserver, kubelet, kube-proxy, kube-controller-manager, kube-scheduler. A pod
/// in the node's network avoids them where it has a choice.
const NODE: [i32; 11] = [2379, 2380, 2381, 6443, 10248, 10249, 10250, 10255, 10256, 10257, 10259];

pub(super) fn is_tcp(port: &ContainerPort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}

/// Returns whether a container other than `name` declares the number, or is probed there.
///
/// The container itself does not count: if it is already in the template, its number is as free, and lower ones are as taken,
/// as when it was injected.
pub(super) fn is_taken(number: u16, name: &str, spec: &PodSpec) -> bool {
    let number = i32::from(number);
    // In the node's network, Kubernetes requires that host ports equal these.
    let declares = |port: &ContainerPort| is_tcp(port) && port.container_port == number;
    let looks_at = |probe: &Probe| {
        let http = probe.http_get.as_ref().map(|get| &get.port);
        let port = http.or(probe.tcp_socket.as_ref().map(|socket| &socket.port));
        port == Some(&IntOrString::Int(number)) || probe.grpc.as_ref().is_some_and(|grpc| grpc.port == number)
    };
    let all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let is_others = all.filter(|container| container.name != name).any(|container| {
        let probes = [&container.startup_probe, &container.readiness_probe, &container.liveness_probe];
        container.ports.iter().flatten().any(declares) || probes.into_iter().flatten().any(looks_at)
    });
    is_others || (host_network(spec) && NODE.contains(&number))
}

pub(super) fn host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true)
}

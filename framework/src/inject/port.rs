//! Ports: handles of one container, and numbers that nobody else in the pod has.

use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::brand::Brand;

/// A TCP port that a container declares, for the probes of that container. Its [`number`](Self::number) is for everybody.
///
/// It borrows the pod as the container does that it belongs to, so it cannot be used once the next container is begun.
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

    /// Its number, for arguments and addresses.
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// The number.
impl fmt::Display for Port<'_, '_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(formatter)
    }
}

/// What programs of a node itself listen on: etcd, kube-apiserver, kubelet, kube-proxy, kube-controller-manager, kube-scheduler.
/// A pod in the node's network stays away from them where it has a choice.
const NODE: [u16; 11] = [2379, 2380, 2381, 6443, 10248, 10249, 10250, 10255, 10256, 10257, 10259];

pub(super) fn is_tcp(port: &ContainerPort) -> bool {
    port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
}

pub(super) fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Whether a container other than `name` has the number, or is probed there.
pub(super) fn is_taken(number: u16, name: &str, spec: &PodSpec) -> bool {
    let wanted = i32::from(number);
    let declares = |port: &ContainerPort| {
        // In the network of the node these are the same by Kubernetes' rules, and one may be left out.
        let on_host = host_network(spec) && port.host_port == Some(wanted);
        is_tcp(port) && (port.container_port == wanted || on_host)
    };
    let is_probe = |probe: &Probe| {
        let http = probe.http_get.as_ref().map(|get| &get.port);
        let port = http.or(probe.tcp_socket.as_ref().map(|socket| &socket.port));
        port == Some(&IntOrString::Int(wanted)) || probe.grpc.as_ref().is_some_and(|grpc| grpc.port == wanted)
    };
    let others = all_containers(spec).filter(|container| container.name != name);
    let on_node = host_network(spec) && NODE.contains(&number);
    on_node
        || others.into_iter().any(|container| {
            let probes = [&container.startup_probe, &container.readiness_probe, &container.liveness_probe];
            container.ports.iter().flatten().any(declares) || probes.into_iter().flatten().any(is_probe)
        })
}

/// The number that a container had when this was injected before: another look for a free one would find it taken, by itself.
pub(super) fn injected_before(container: &str, port: &str, from: u16, spec: &PodSpec) -> Option<u16> {
    let container = all_containers(spec).find(|present| present.name == container)?;
    let port = container.ports.iter().flatten().find(|present| present.name.as_deref() == Some(port))?;
    u16::try_from(port.container_port).ok().filter(|number| *number >= from)
}

pub(super) fn host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true)
}

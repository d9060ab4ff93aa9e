//! Probes and lifecycle hooks of a container, each with its field.

use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

pub(super) const READINESS: &str = "readinessProbe";

pub(super) fn probes(container: &Container) -> impl Iterator<Item = (&'static str, &Probe)> {
    let probes = [
        ("startupProbe", &container.startup_probe),
        (READINESS, &container.readiness_probe),
        ("livenessProbe", &container.liveness_probe),
    ];
    probes.into_iter().filter_map(|(field, probe)| Some((field, probe.as_ref()?)))
}

pub(super) fn hooks(container: &Container) -> impl Iterator<Item = (&'static str, &LifecycleHandler)> {
    let lifecycle = container.lifecycle.as_ref();
    let hooks = [
        ("lifecycle.postStart", lifecycle.and_then(|lifecycle| lifecycle.post_start.as_ref())),
        ("lifecycle.preStop", lifecycle.and_then(|lifecycle| lifecycle.pre_stop.as_ref())),
    ];
    hooks.into_iter().filter_map(|(field, hook)| Some((field, hook?)))
}

pub(super) fn requests(container: &Container) -> impl Iterator<Item = (&'static str, &HTTPGetAction)> {
    let probes = probes(container).filter_map(|(field, probe)| Some((field, probe.http_get.as_ref()?)));
    probes.chain(hooks(container).filter_map(|(field, hook)| Some((field, hook.http_get.as_ref()?))))
}

/// A TCP port that kubelet connects to.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    pub(super) field: &'static str,
    /// By default the pod's address.
    pub(super) host: Option<&'a str>,
    pub(super) port: IntOrString,
}

pub(super) fn connections(container: &Container) -> impl Iterator<Item = Connection<'_>> {
    let http =
        requests(container).map(|(field, get)| Connection { field, host: get.host.as_deref(), port: get.port.clone() });
    let tcp = probes(container).filter_map(|(field, probe)| {
        let socket = probe.tcp_socket.as_ref()?;
        Some(Connection { field, host: socket.host.as_deref(), port: socket.port.clone() })
    });
    let grpc = probes(container).filter_map(|(field, probe)| {
        Some(Connection { field, host: None, port: IntOrString::Int(probe.grpc.as_ref()?.port) })
    });
    http.chain(tcp).chain(grpc)
}

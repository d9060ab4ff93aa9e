//! Checks of a container: image, variables, ports, probes and hooks.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, LifecycleHandler, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::resources;
use crate::inject::handlers::{self, Connection, connections};
use crate::inject::port;
use crate::inject::problem::Problems;

pub(super) fn check(path: &str, container: &Container, problems: &mut Problems) {
    if container.image.as_deref().is_none_or(str::is_empty) {
        problems.invalid(format!("{path}.image"), "is empty".to_owned(), "name an image");
    }
    variables(path, container, problems);
    ports(path, container, problems);
    probed_ports(path, container, problems);
    headers(path, container, problems);
    actions(path, container, problems);
    users(path, container, problems);
    kind(path, container, problems);
}

fn variables(path: &str, container: &Container, problems: &mut Problems) {
    let mut names = HashSet::new();
    for variable in container.env.iter().flatten() {
        let path = format!("{path}.env[{}]", variable.name);
        if variable.name.is_empty() || variable.name.contains('=') {
            problems.invalid(path, "has an invalid name".to_owned(), "use a name without '='");
        } else if !names.insert(&variable.name) {
            problems.invalid(path, "is added twice".to_owned(), "add it once");
        } else {
            resource_field(&path, variable, problems);
        }
    }
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if prefix.contains('=') {
            let path = format!("{path}.envFrom[{prefix}]");
            problems.invalid(path, "has an invalid prefix".to_owned(), "use a prefix without '='");
        }
    }
}

fn resource_field(path: &str, variable: &EnvVar, problems: &mut Problems) {
    let Some(field) = variable.value_from.as_ref().and_then(|source| source.resource_field_ref.as_ref()) else {
        return;
    };
    let path = format!("{path}.valueFrom.resourceFieldRef");
    let resource = field.resource.strip_prefix("limits.").or_else(|| field.resource.strip_prefix("requests."));
    let Some(resource) = resource.filter(|resource| resources::is_standard(resource)) else {
        let remedy = "reference cpu, memory, ephemeral-storage or hugepages-<size>";
        problems.invalid(format!("{path}.resource"), format!("is {:?}", field.resource), remedy);
        return;
    };
    if let Some(divisor) = &field.divisor {
        resources::divisor(&format!("{path}.divisor"), resource, divisor, problems);
    }
}

fn ports(path: &str, container: &Container, problems: &mut Problems) {
    let (mut names, mut numbers, mut host_ports) = (HashSet::new(), HashSet::new(), HashSet::new());
    for port in container.ports.iter().flatten() {
        let name = port.name.as_deref().unwrap_or_default();
        let path = format!("{path}.ports[{name}]");
        // Only `raw` adds ports without names.
        if port.name.is_some() && !is_port_name(name) {
            let remedy =
                "use at most 15 lower-case letters, digits and single '-' between them, with at least one letter";
            problems.invalid(path.clone(), "has an invalid name".to_owned(), remedy);
        }
        let protocol = port::protocol(port);
        if ![port.container_port, port.host_port.unwrap_or(1)].into_iter().all(|port| (1..=65535).contains(&port)) {
            let found = if port.container_port == 0 { "has number 0" } else { "has an invalid number" };
            problems.invalid(path.clone(), found.to_owned(), "give it another number");
        }
        let is_new_name = port.name.is_none() || names.insert(name);
        if !is_new_name || !numbers.insert((port.container_port, protocol)) {
            problems.invalid(path.clone(), "is declared twice".to_owned(), "declare each name and number once");
        }
        if let Some(host_port) = port.host_port
            && !host_ports.insert((host_port, protocol, port.host_ip.as_deref()))
        {
            let found = format!("is {}, as that of another port", port::shown(host_port, protocol));
            problems.invalid(format!("{path}.hostPort"), found, "give each its own");
        }
    }
}

/// Handles cannot be of undeclared ports, but `raw` can.
fn probed_ports(path: &str, container: &Container, problems: &mut Problems) {
    for Connection { field, port: wanted, .. } in connections(container).filter(|it| it.host.is_none()) {
        if !container.ports.iter().flatten().any(|declared| port::is_probed(&wanted, declared)) {
            let wanted = match wanted {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name,
            };
            let found = format!("uses TCP port {wanted}, which the container does not declare");
            problems.invalid(format!("{path}.{field}"), found, "declare the port");
        }
    }
}

fn headers(path: &str, container: &Container, problems: &mut Problems) {
    for (field, get) in handlers::requests(container) {
        for header in get.http_headers.iter().flatten() {
            let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
            if header.name.is_empty() || !header.name.chars().all(is_inner) {
                let path = format!("{path}.{field}.httpGet.httpHeaders[{}]", header.name);
                problems.invalid(path, "has an invalid name".to_owned(), "use letters, digits and '-'");
            }
        }
    }
}

/// Builders of probes and hooks set exactly one action.
fn actions(path: &str, container: &Container, problems: &mut Problems) {
    let probes = handlers::probes(container).map(|(field, probe)| {
        let Probe { exec, http_get, tcp_socket, grpc, .. } = probe;
        (field, [exec.is_some(), http_get.is_some(), tcp_socket.is_some(), grpc.is_some()])
    });
    let hooks = handlers::hooks(container).map(|(field, hook)| {
        let LifecycleHandler { exec, http_get, tcp_socket, sleep, .. } = hook;
        (field, [exec.is_some(), http_get.is_some(), tcp_socket.is_some(), sleep.is_some()])
    });
    for (field, actions) in probes.chain(hooks) {
        let count = actions.into_iter().filter(|is_set| *is_set).count();
        if count != 1 {
            problems.invalid(format!("{path}.{field}"), format!("has {count} actions"), "give it one");
        }
    }
}

fn users(path: &str, container: &Container, problems: &mut Problems) {
    let Some(context) = &container.security_context else { return };
    for (field, id) in [("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)] {
        if let Some(id) = id.filter(|id| i32::try_from(*id).is_err()) {
            let path = format!("{path}.securityContext.{field}");
            problems.invalid(path, format!("is {id}"), "use a number up to 2147483647");
        }
    }
}

/// What a kind of container cannot have does not compile, except with `raw`.
fn kind(path: &str, container: &Container, problems: &mut Problems) {
    if path.starts_with("spec.initContainers") && container.restart_policy.is_none() {
        let probes = handlers::probes(container).map(|(field, _)| field);
        for field in probes.chain(container.lifecycle.iter().map(|_| "lifecycle")) {
            let found = "is set in a container that runs to its end".to_owned();
            problems.invalid(format!("{path}.{field}"), found, "remove it, or make the container a sidecar");
        }
    }
    for (field, probe) in handlers::probes(container) {
        let is_readiness = field == handlers::READINESS;
        if !is_readiness && probe.success_threshold.is_some_and(|threshold| threshold != 1) {
            let found = "is not 1".to_owned();
            problems.invalid(format!("{path}.{field}.successThreshold"), found, "set it only for readiness");
        }
        if is_readiness && probe.termination_grace_period_seconds.is_some() {
            let path = format!("{path}.{field}.terminationGracePeriodSeconds");
            let remedy = "set it for the liveness or the startup probe";
            problems.invalid(path, "is set, but a readiness probe terminates nothing".to_owned(), remedy);
        }
    }
}

fn is_port_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let has_ends = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    has_ends && name.len() <= 15 && name.chars().all(is_inner) && name.chars().any(|c| c.is_ascii_lowercase())
}

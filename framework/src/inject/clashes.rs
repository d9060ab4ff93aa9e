//! Containers of a pod that cannot be together: they share its addresses, and its user.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::pod::Draft;
use super::port;
use super::problem::Problems;

/// Looks for ports that two containers have, one of which is injected.
pub(super) fn of_ports(injected: &HashSet<String>, spec: &PodSpec, problems: &mut Problems) {
    let ordered = spec.init_containers.iter().flatten().map(|container| ("initContainers", container));
    let all: Vec<_> = ordered.chain(spec.containers.iter().map(|container| ("containers", container))).collect();
    let is_ours = |container: &Container| injected.contains(&container.name);
    for (index, (_, ours)) in all.iter().enumerate().filter(|(_, (_, container))| is_ours(container)) {
        for (other_index, (list, other)) in all.iter().enumerate() {
            // Two that are both injected are looked at once.
            if index == other_index || (is_ours(other) && other_index < index) {
                continue;
            }
            for (our, their) in pairs(ours, other) {
                let path = format!("spec.{list}[{}].ports[{}]", other.name, their.container_port);
                if is_ours(other) {
                    let found = format!("has the number or name of one of {:?}", ours.name);
                    problems.invalid(path, found, "give each its own");
                } else if our.container_port == their.container_port {
                    let found = format!("is the port that injected container {:?} listens on", ours.name);
                    problems.collision(path, found, "let it listen on another one");
                } else {
                    let name = their.name.as_deref().unwrap_or_default();
                    let found = format!("has the name {name:?} of a port of injected container {:?}", ours.name);
                    let remedy = "give it another name, since a Service that asks for it gets the first";
                    problems.collision(path, found, remedy);
                }
            }
        }
    }
}

/// TCP ports of both with the same number, and ports with the same name.
fn pairs<'a>(
    ours: &'a Container,
    other: &'a Container,
) -> impl Iterator<Item = (&'a ContainerPort, &'a ContainerPort)> {
    let of = |container: &'a Container| container.ports.iter().flatten();
    of(ours).flat_map(move |our| of(other).map(move |their| (our, their))).filter(|(our, their)| {
        let is_number = our.container_port == their.container_port && port::is_tcp(our) && port::is_tcp(their);
        is_number || (our.name.is_some() && our.name == their.name)
    })
}

/// Looks for containers that must not run as root in a pod that runs as root.
pub(super) fn with_root(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    let is_root = spec.security_context.as_ref().and_then(|context| context.run_as_user) == Some(0);
    let mut refusing = Vec::new();
    for (list, container) in draft.injected() {
        let context = container.security_context.as_ref().filter(|context| context.run_as_non_root == Some(true));
        match context.map(|context| context.run_as_user) {
            Some(Some(0)) => {
                let path = format!("spec.{list}[{}].securityContext.runAsUser", container.name);
                problems.invalid(path, "is root, which it must not run as".to_owned(), "give it another user");
            }
            Some(None) if is_root => refusing.push(container.name.as_str()),
            _ => {}
        }
    }
    if !refusing.is_empty() {
        let found = format!("is 0, and these injected containers must not run as root: {}", refusing.join(", "));
        let remedy = "set the user of the containers that need it instead";
        problems.collision("spec.securityContext.runAsUser".to_owned(), found, remedy);
    }
}

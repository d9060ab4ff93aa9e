//! Conflicts between the containers of a pod, which share its addresses and its user.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec};

use super::pod::Draft;
use super::port;
use super::problem::Problems;

/// Reports ports of the user's containers that an injected container has, too.
pub(super) fn of_ports(draft: &Draft, injected: &HashSet<String>, spec: &PodSpec, problems: &mut Problems) {
    // A container with an injected name is the injected one, or already a collision.
    for (list, users) in containers(spec).filter(|(_, container)| !injected.contains(&container.name)) {
        for (ours, our, their) in draft.injected().flat_map(|(_, ours)| pairs(ours, users)) {
            let path = format!("spec.{list}[{}].ports[{}]", users.name, their.container_port);
            if our.container_port == their.container_port {
                let found = format!("is the port that injected container {ours:?} listens on");
                problems.collision(path, found, "use another port");
            } else {
                let name = their.name.as_deref().unwrap_or_default();
                let found = format!("has the name {name:?} of a port of injected container {ours:?}");
                let remedy = "rename it, because a Service that selects it by name gets the first";
                problems.collision(path, found, remedy);
            }
        }
    }
}

/// Reports ports that two injected containers have.
pub(super) fn of_injected_ports(draft: &Draft, problems: &mut Problems) {
    let injected: Vec<_> = draft.injected().collect();
    for (index, (_, one)) in injected.iter().enumerate() {
        for (list, other) in &injected[index + 1..] {
            for (one, _, port) in pairs(one, other) {
                let path = format!("spec.{list}[{}].ports[{}]", other.name, port.container_port);
                problems.invalid(path, format!("has the number or name of a port of {one:?}"), "give each its own");
            }
        }
    }
}

/// Returns TCP ports of both with the same number, and ports with the same name; with the name of the first container.
fn pairs<'a>(
    one: &'a Container,
    other: &'a Container,
) -> impl Iterator<Item = (&'a str, &'a ContainerPort, &'a ContainerPort)> {
    let of = |container: &'a Container| container.ports.iter().flatten();
    let all = of(one).flat_map(move |our| of(other).map(move |their| (one.name.as_str(), our, their)));
    all.filter(|(_, our, their)| {
        let is_number = our.container_port == their.container_port && port::is_tcp(our) && port::is_tcp(their);
        is_number || (our.name.is_some() && our.name == their.name)
    })
}

/// Reports the user's containers that mount a private volume, and additions to injected containers of a template that has them
/// already: a mount would get what they write there, and a variable could make them run another program.
pub(super) fn of_private_volumes(draft: &Draft, injected: &HashSet<String>, spec: &PodSpec, problems: &mut Problems) {
    if draft.private.is_empty() {
        return;
    }
    for (list, theirs) in containers(spec) {
        let mut report = |field: String, found: String| {
            problems.collision(format!("spec.{list}[{}].{field}", theirs.name), found, "remove it");
        };
        if !injected.contains(&theirs.name) {
            for mount in theirs.volume_mounts.iter().flatten().filter(|mount| draft.private.contains(&mount.name)) {
                let found = format!("is volume {:?}, which only injected containers may mount", mount.name);
                report(format!("volumeMounts[{}]", mount.mount_path), found);
            }
            continue;
        }
        let Some((_, ours)) = draft.injected().find(|(_, ours)| ours.name == theirs.name) else { continue };
        let mut added = |field: String| report(field, "is not in the injected container".to_owned());
        let known: HashSet<_> = ours.env.iter().flatten().map(|variable| &variable.name).collect();
        let more = theirs.env.iter().flatten().filter(|variable| !known.contains(&variable.name));
        more.for_each(|variable| added(format!("env[{}]", variable.name)));
        let known: HashSet<_> = ours.volume_mounts.iter().flatten().map(|mount| &mount.mount_path).collect();
        let more = theirs.volume_mounts.iter().flatten().filter(|mount| !known.contains(&mount.mount_path));
        more.for_each(|mount| added(format!("volumeMounts[{}]", mount.mount_path)));
    }
}

/// Returns the containers of a pod, each with the name of its list.
fn containers(spec: &PodSpec) -> impl Iterator<Item = (&'static str, &Container)> {
    let ordered = spec.init_containers.iter().flatten().map(|container| ("initContainers", container));
    ordered.chain(spec.containers.iter().map(|container| ("containers", container)))
}

/// Reports containers that must not run as root in a pod that runs as root.
pub(super) fn with_root(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    let is_root = spec.security_context.as_ref().and_then(|context| context.run_as_user) == Some(0);
    let mut refusing = Vec::new();
    for (list, container) in draft.injected() {
        let context = container.security_context.as_ref().filter(|context| context.run_as_non_root == Some(true));
        match context.map(|context| context.run_as_user) {
            Some(Some(0)) => {
                let path = format!("spec.{list}[{}].securityContext.runAsUser", container.name);
                problems.invalid(path, "is 0, although runAsNonRoot is true".to_owned(), "set another user");
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

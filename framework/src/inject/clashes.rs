//! Conflicts of injected containers with each other, with the user's and with fields of the pod: containers share its
//! addresses, its user and its time to terminate.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, PodSpec, Sysctl};

use super::handlers;
use super::pod::Draft;
use super::port;
use super::problem::Problems;

/// Reports ports of the user's containers that an injected container has, too.
pub(super) fn of_ports(draft: &Draft, injected: &HashSet<String>, spec: &PodSpec, problems: &mut Problems) {
    // A container with an injected name is the injected one, or already a collision.
    for (list, users) in containers(spec).filter(|(_, container)| !injected.contains(&container.name)) {
        for Shared { of: ours, port: their, what } in draft.injected().flat_map(|(_, ours)| shared(ours, users)) {
            let path = format!("spec.{list}[{}].ports[{}]", users.name, port::item(their, users));
            match what {
                What::Number => {
                    let found = format!("is the port that injected container {ours:?} listens on");
                    problems.collision(path, found, "use another port");
                }
                What::HostPort(host_port) => {
                    let found = format!("is {host_port}, which injected container {ours:?} uses on the node");
                    problems.collision(format!("{path}.hostPort"), found, "use another port of the node");
                }
                What::Name => {
                    let name = their.name.as_deref().unwrap_or_default();
                    let found = format!("has the name {name:?} of a port of injected container {ours:?}");
                    let remedy = "rename it, because a Service that selects it by name gets the first";
                    problems.collision(format!("{path}.name"), found, remedy);
                }
            }
        }
    }
}

/// Reports ports that two injected containers have.
pub(super) fn of_injected_ports(draft: &Draft, problems: &mut Problems) {
    let injected: Vec<_> = draft.injected().collect();
    for (index, (_, one)) in injected.iter().enumerate() {
        for (list, other) in &injected[index + 1..] {
            for Shared { of: one, port, what } in shared(one, other) {
                let path = format!("spec.{list}[{}].ports[{}]", other.name, port::item(port, other));
                let found = match what {
                    What::Number | What::Name => format!("has the number or name of a port of {one:?}"),
                    What::HostPort(host_port) => format!("has host port {host_port}, as a port of {one:?}"),
                };
                problems.invalid(path, found, "give each its own");
            }
        }
    }
}

/// What two ports have in common.
enum What {
    Number,
    HostPort(i32),
    Name,
}

/// A port of a container that has something in common with a port of the container `of`.
struct Shared<'a> {
    of: &'a str,
    port: &'a ContainerPort,
    what: What,
}

/// Returns the ports of `other` that have the number, the host port or the name of a port of `one`. Numbers are those of a
/// protocol.
fn shared<'a>(one: &'a Container, other: &'a Container) -> impl Iterator<Item = Shared<'a>> {
    let of = |container: &'a Container| container.ports.iter().flatten();
    let all = of(one).flat_map(move |our| of(other).map(move |their| (our, their)));
    all.flat_map(move |(our, their)| {
        let is_protocol = port::protocol(our) == port::protocol(their);
        let number = (is_protocol && our.container_port == their.container_port).then_some(What::Number);
        let host_port = our.host_port.filter(|_| is_protocol && our.host_port == their.host_port);
        let host_port = host_port.filter(|_| is_same_host(our, their)).map(What::HostPort);
        let name = (our.name.is_some() && our.name == their.name).then_some(What::Name);
        let of = one.name.as_str();
        [number, host_port, name].into_iter().flatten().map(move |what| Shared { of, port: their, what })
    })
}

/// Returns whether both are on a common address of the node: by default on all.
fn is_same_host(one: &ContainerPort, other: &ContainerPort) -> bool {
    let address = |port: &ContainerPort| {
        port.host_ip.clone().filter(|address| !["", "0.0.0.0", "::"].contains(&address.as_str()))
    };
    match (address(one), address(other)) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// Reports host ports that differ from the container's port in a pod in the node's network, which an API server rejects.
pub(super) fn with_host_network(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    if !port::host_network(spec) {
        return;
    }
    for (_, container) in draft.injected() {
        for port in container.ports.iter().flatten() {
            if let Some(host_port) = port.host_port.filter(|host_port| *host_port != port.container_port) {
                let (name, ours) = (&container.name, port::shown(port.container_port, port::protocol(port)));
                let needs =
                    format!("injected container {name:?} needs port {host_port} of the node for its port {ours}");
                problems.collision("spec.hostNetwork".to_owned(), format!("is true, but {needs}"), "remove it");
            }
        }
    }
}

/// Reports kernel parameters of namespaces that the pod shares with the node, which an API server rejects.
pub(super) fn with_host_namespaces(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    const NETWORK: &[&str] = &["net."];
    const IPC: &[&str] = &["kernel.sem", "kernel.shm", "kernel.msg", "fs.mqueue."];
    let namespaces = [("hostNetwork", spec.host_network, NETWORK), ("hostIPC", spec.host_ipc, IPC)];
    for (field, _, prefixes) in namespaces.into_iter().filter(|(_, is_shared, _)| *is_shared == Some(true)) {
        for Sysctl { name, .. } in draft.security.sysctls.iter().flatten() {
            // Both separators are allowed.
            let dotted = name.replace('/', ".");
            if prefixes.iter().any(|prefix| dotted.starts_with(prefix)) {
                let found = format!("is true, but the injection sets kernel parameter {name:?}");
                problems.collision(format!("spec.{field}"), found, "remove it");
            }
        }
    }
}

/// How long Kubernetes waits for a pod to terminate, in seconds.
const GRACE_PERIOD: i64 = 30;

/// Reports hooks that sleep longer than the pod may take to terminate, which an API server rejects.
pub(super) fn with_grace_period(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    let period = spec.termination_grace_period_seconds.unwrap_or(GRACE_PERIOD);
    for (_, container) in draft.injected() {
        for (field, hook) in handlers::hooks(container) {
            let Some(sleep) = hook.sleep.as_ref().filter(|sleep| sleep.seconds > period) else { continue };
            let found = format!(
                "is {period}, but {field} of injected container {:?} sleeps {} seconds",
                container.name, sleep.seconds
            );
            let remedy = format!("set it to {} or more", sleep.seconds);
            problems.collision("spec.terminationGracePeriodSeconds".to_owned(), found, remedy);
        }
    }
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

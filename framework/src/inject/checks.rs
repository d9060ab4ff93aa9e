//! Checks of an injection by itself, independent of the template.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::Container;

use super::clashes;
use super::pod::Draft;
use super::problem::Problems;

/// Checks everything that would be added.
pub(super) fn check(draft: &Draft, problems: &mut Problems) {
    let mut names = HashSet::new();
    for volume in &draft.volumes {
        name(&format!("spec.volumes[{}]", volume.name), &volume.name, &mut names, problems);
    }
    let mut names = HashSet::new();
    for (list, added) in draft.injected() {
        let path = format!("spec.{list}[{}]", added.name);
        name(&path, &added.name, &mut names, problems);
        container(&path, added, problems);
    }
    clashes::of_injected_ports(draft, problems);
    for grant in &draft.grants {
        mount_path("kubeconfig", &grant.mount.mount_path, problems);
    }
}

fn name<'a>(path: &str, name: &'a str, names: &mut HashSet<&'a str>, problems: &mut Problems) {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 63 || !name.chars().all(is_inner) || name.starts_with('-') || name.ends_with('-')
    {
        let remedy = "use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends";
        problems.invalid(path.to_owned(), "has an invalid name".to_owned(), remedy);
    }
    if !names.insert(name) {
        problems.invalid(path.to_owned(), "is added twice".to_owned(), "add it once");
    }
}

fn container(path: &str, container: &Container, problems: &mut Problems) {
    if container.image.as_deref().is_none_or(str::is_empty) {
        problems.invalid(format!("{path}.image"), "is empty".to_owned(), "name an image");
    }
    let mut names = HashSet::new();
    for variable in container.env.iter().flatten() {
        let path = format!("{path}.env[{}]", variable.name);
        if variable.name.is_empty() || variable.name.contains('=') {
            problems.invalid(path, "has an invalid name".to_owned(), "use a name without '='");
        } else if !names.insert(&variable.name) {
            problems.invalid(path, "is added twice".to_owned(), "add it once");
        }
    }
    let mut paths = HashSet::new();
    for mount in container.volume_mounts.iter().flatten() {
        mount_path(path, &mount.mount_path, problems);
        let path = format!("{path}.volumeMounts[{}]", mount.mount_path);
        if !paths.insert(mount.mount_path.trim_end_matches('/')) {
            problems.invalid(path.clone(), "is mounted twice".to_owned(), "mount one volume there");
        }
        let sub_path = mount.sub_path.as_deref().unwrap_or_default();
        if sub_path.starts_with('/') || sub_path.split('/').any(|part| part == "..") {
            let remedy = "use a relative path without '..'";
            problems.invalid(format!("{path}.subPath"), format!("is {sub_path:?}"), remedy);
        }
    }
    let (mut names, mut numbers) = (HashSet::new(), HashSet::new());
    for port in container.ports.iter().flatten() {
        let name = port.name.as_deref().unwrap_or_default();
        let path = format!("{path}.ports[{name}]");
        if !is_port_name(name) {
            let remedy =
                "use at most 15 lower-case letters, digits and single '-' between them, with at least one letter";
            problems.invalid(path.clone(), "has an invalid name".to_owned(), remedy);
        }
        if port.container_port == 0 {
            problems.invalid(path.clone(), "has number 0".to_owned(), "give it another number");
        }
        if !names.insert(name) || !numbers.insert(port.container_port) {
            problems.invalid(path, "is declared twice".to_owned(), "declare each name and number once");
        }
    }
}

fn mount_path(container: &str, path: &str, problems: &mut Problems) {
    if !path.starts_with('/') || path.contains(':') {
        let remedy = "use an absolute path without ':'";
        problems.invalid(format!("{container}.volumeMounts[{path}]"), format!("is at {path:?}"), remedy);
    }
}

fn is_port_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let has_ends = !name.starts_with('-') && !name.ends_with('-') && !name.contains("--");
    has_ends && name.len() <= 15 && name.chars().all(is_inner) && name.chars().any(|c| c.is_ascii_lowercase())
}

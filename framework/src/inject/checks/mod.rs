//! Checks of an injection by itself, independent of the template.

mod container;
mod mounts;
mod resources;
mod volumes;

use std::collections::HashSet;

use super::clashes;
use super::pod::Draft;
use super::problem::Problems;

/// Checks everything that would be added.
pub(super) fn check(draft: &Draft, problems: &mut Problems) {
    let mut names = HashSet::new();
    for volume in &draft.volumes {
        let path = format!("spec.volumes[{}]", volume.name);
        name(&path, &volume.name, &mut names, problems);
        volumes::check(&path, volume, problems);
    }
    let mut names = HashSet::new();
    for (list, added) in draft.injected() {
        let path = format!("spec.{list}[{}]", added.name);
        name(&path, &added.name, &mut names, problems);
        container::check(&path, added, problems);
        mounts::check(&path, added, draft, problems);
        if let Some(resources) = &added.resources {
            resources::check(&path, resources, problems);
        }
    }
    clashes::of_injected_ports(draft, problems);
    for grant in &draft.grants {
        mounts::path("kubeconfig", &grant.mount.mount_path, problems);
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

//! Kubeconfigs for the user's containers.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec, Volume, VolumeMount};

use super::kubeconfig::Users;
use super::mounts::{is_files, is_within, normal};
use super::problem::Problems;
use super::recognise;

/// Mounts a kubeconfig into the user's containers.
pub(super) fn give(
    to: &Users,
    mount: &VolumeMount,
    variable: Option<&EnvVar>,
    injected: &HashSet<String>,
    spec: &mut PodSpec,
    problems: &mut Problems,
) {
    let PodSpec { containers, init_containers, volumes, .. } = spec;
    let volumes = volumes.as_deref().unwrap_or_default();
    let init_containers = init_containers.iter_mut().flatten().map(|container| ("initContainers", container));
    let all = init_containers.chain(containers.iter_mut().map(|container| ("containers", container)));
    let users: Vec<_> = all.filter(|(_, container)| !injected.contains(&container.name)).collect();
    if let Users::Named(names) = to {
        let there: Vec<_> = users.iter().map(|(_, container)| container.name.as_str()).collect();
        for name in names.iter().filter(|name| !there.contains(&name.as_str())) {
            let found = format!("does not exist, and should get a kubeconfig; containers: {}", there.join(", "));
            problems.collision(format!("spec.containers[{name}]"), found, "name one of these");
        }
    }
    for (list, container) in users {
        let is_meant = match to {
            Users::All => true,
            Users::Named(names) => names.contains(&container.name),
        };
        if is_meant {
            let path = format!("spec.{list}[{}]", container.name);
            mount_into(container, mount, volumes, &path, problems);
            if let Some(variable) = variable {
                set(container, variable, &path, problems);
            }
        }
    }
}

fn set(container: &mut Container, variable: &EnvVar, path: &str, problems: &mut Problems) {
    let env = container.env.get_or_insert_default();
    match env.iter().rfind(|present| present.name == variable.name) {
        None => env.push(variable.clone()),
        Some(present) if recognise::differences(variable, present).is_empty() => {}
        Some(present) => {
            let found = match &present.value {
                Some(value) => format!("is {value:?}"),
                None => "has a value from another source".to_owned(),
            };
            let remedy = "remove it, or do not request a kubeconfig in this container";
            problems.collision(format!("{path}.env[{}]", variable.name), found, remedy);
        }
    }
}

fn mount_into(container: &mut Container, mount: &VolumeMount, volumes: &[Volume], path: &str, problems: &mut Problems) {
    let mounts = container.volume_mounts.get_or_insert_default();
    let ours = normal(&mount.mount_path);
    for present in mounts.iter() {
        let theirs = normal(&present.mount_path);
        let at = |path: &str| format!("{path}.volumeMounts[{}]", present.mount_path);
        if theirs == ours {
            let wanted = VolumeMount { mount_path: present.mount_path.clone(), ..mount.clone() };
            if recognise::differences(&wanted, present).is_empty() {
                return;
            }
            let found = format!("is volume {:?}, where the kubeconfig would be", present.name);
            problems.collision(at(path), found, "mount it elsewhere, or request the kubeconfig elsewhere");
        } else if is_within(theirs, ours) && mount.sub_path.is_none() {
            let found =
                format!("is inside {}, where the read-only folder of the kubeconfig would be", mount.mount_path);
            problems.collision(at(path), found, "request the kubeconfig in another folder, or as a file");
        } else if is_within(ours, theirs)
            && volumes.iter().any(|volume| volume.name == present.name && is_files(volume))
        {
            let found = format!("is read-only, and contains {}, where the kubeconfig would be", mount.mount_path);
            problems.collision(at(path), found, "request the kubeconfig in another folder");
        }
    }
    mounts.push(mount.clone());
}

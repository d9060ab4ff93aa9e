//! Checks of the mounts of a container.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};

use crate::inject::mounts::{is_files, is_within, normal};
use crate::inject::pod::Draft;
use crate::inject::problem::Problems;

pub(super) fn check(path: &str, container: &Container, draft: &Draft, problems: &mut Problems) {
    let mut paths = HashSet::new();
    for mount in container.volume_mounts.iter().flatten() {
        self::path(path, &mount.mount_path, problems);
        let path = format!("{path}.volumeMounts[{}]", mount.mount_path);
        if !paths.insert(normal(&mount.mount_path)) {
            problems.invalid(path.clone(), "is mounted twice".to_owned(), "mount one volume there");
        }
        sub_path(&path, mount, container, problems);
        access(&path, mount, container, draft, problems);
    }
    nested(path, container, draft, problems);
}

/// Checks the path of a mount.
pub(super) fn path(container: &str, path: &str, problems: &mut Problems) {
    if !path.starts_with('/') || path.contains(':') {
        let remedy = "use an absolute path without ':'";
        problems.invalid(format!("{container}.volumeMounts[{path}]"), format!("is at {path:?}"), remedy);
    }
}

fn sub_path(path: &str, mount: &VolumeMount, container: &Container, problems: &mut Problems) {
    for (field, value) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
        let value = value.as_deref().unwrap_or_default();
        if value.starts_with('/') || value.split('/').any(|part| part == "..") {
            let remedy = "use a relative path without '..'";
            problems.invalid(format!("{path}.{field}"), format!("is {value:?}"), remedy);
        }
    }
    if mount.sub_path.is_some() && mount.sub_path_expr.is_some() {
        let found = "is set together with subPath".to_owned();
        problems.invalid(format!("{path}.subPathExpr"), found, "set one of them");
    }
    // Variables of a whole Secret or `ConfigMap` are not known.
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        return;
    }
    for name in variables(mount.sub_path_expr.as_deref().unwrap_or_default()) {
        if !container.env.iter().flatten().any(|variable| variable.name == name) {
            let found = format!("uses variable {name:?}, which the container does not have");
            problems.invalid(format!("{path}.subPathExpr"), found, "add the variable");
        }
    }
}

/// Returns the variables in an expression: `$(A)`, but not `$$(A)`.
fn variables(expression: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), expression);
    while let Some((_, after)) = rest.split_once('$') {
        rest = after;
        if let Some(escaped) = after.strip_prefix('$') {
            rest = escaped;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            found.push(name);
            rest = after;
        }
    }
    found
}

/// Handles of volumes ensure most of it, but `raw` uses none.
fn access(path: &str, mount: &VolumeMount, container: &Container, draft: &Draft, problems: &mut Problems) {
    if volumes(draft).all(|volume| volume.name != mount.name) {
        let found = format!("is volume {:?}, which the pod does not have", mount.name);
        problems.invalid(path.to_owned(), found, "add the volume");
    }
    let is_read_only = mount.read_only == Some(true);
    if draft.read_only.contains(&mount.name) && !is_read_only {
        let found = format!("is a writable mount of the read-only volume {:?}", mount.name);
        problems.invalid(path.to_owned(), found, "mount it read-only");
    }
    let propagation = mount.mount_propagation.as_deref();
    let is_privileged = container.security_context.as_ref().is_some_and(|context| context.privileged == Some(true));
    if propagation == Some("Bidirectional") && !is_privileged {
        let found = "is Bidirectional in a container that is not privileged".to_owned();
        problems.invalid(format!("{path}.mountPropagation"), found, "give the container a privileged security context");
    }
    let is_recursive = mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled");
    if is_recursive && (!is_read_only || propagation.is_some_and(|propagation| propagation != "None")) {
        let found = "requires a read-only mount without mount propagation".to_owned();
        problems.invalid(format!("{path}.recursiveReadOnly"), found, "remove one of them");
    }
}

fn nested(path: &str, container: &Container, draft: &Draft, problems: &mut Problems) {
    let mounts = || container.volume_mounts.iter().flatten();
    let has_files = |mount: &&VolumeMount| volumes(draft).any(|volume| volume.name == mount.name && is_files(volume));
    for outer in mounts().filter(has_files) {
        for inner in mounts().filter(|inner| is_within(normal(&inner.mount_path), normal(&outer.mount_path))) {
            let path = format!("{path}.volumeMounts[{}]", inner.mount_path);
            let found = format!("is inside the read-only files at {}, where it cannot be created", outer.mount_path);
            problems.invalid(path, found, "mount it elsewhere");
        }
    }
}

/// Returns the volumes of the pod: injected ones first, which count if the template has others with their names.
fn volumes(draft: &Draft) -> impl Iterator<Item = &Volume> {
    let users = draft.template.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    draft.volumes.iter().chain(users.into_iter().flatten())
}

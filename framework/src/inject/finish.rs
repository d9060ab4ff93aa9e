//! Merges the additions into the template.

use std::collections::HashSet;
use std::mem;

use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, PodSecurityContext, PodSpec, PodTemplateSpec, Volume,
};

use super::pod::{Draft, Grant, InOrder};
use super::pod_security;
use super::problem::{InjectError, Problems};
use super::recognise::Difference;
use super::{checks, clashes, grants, recognise};

/// Adds what is missing, recognises what is already injected, and reports everything else.
pub(super) fn finish(mut draft: Draft) -> Result<PodTemplateSpec, InjectError> {
    let mut problems = mem::take(&mut draft.problems);
    checks::check(&draft, &mut problems);
    let injected: HashSet<String> = draft.injected().map(|(_, container)| container.name.clone()).collect();
    let mut template = mem::take(&mut draft.template);
    mem::take(&mut draft.metadata).merge(&mut template.metadata, &mut problems);
    let spec = template.spec.get_or_insert_default();

    misplaced(&draft, spec, &mut problems);
    clashes::with_root(&draft, spec, &mut problems);
    clashes::with_host_network(&draft, spec, &mut problems);
    clashes::with_host_namespaces(&draft, spec, &mut problems);
    clashes::with_grace_period(&draft, spec, &mut problems);
    clashes::of_ports(&draft, &injected, spec, &mut problems);
    clashes::of_private_volumes(&draft, &injected, spec, &mut problems);
    security(&draft.security, spec, &mut problems);
    volumes(draft.volumes, spec, &mut problems);
    in_order(&draft.init_containers, spec, &mut problems);
    for container in draft.containers {
        beside("containers", container, &mut spec.containers, &mut problems);
    }
    for Grant { to, mount, variable } in draft.grants {
        grants::give(&to, &mount, variable.as_ref(), &injected, spec, &mut problems);
    }
    for name in draft.pull_secrets {
        let secrets = spec.image_pull_secrets.get_or_insert_default();
        if !secrets.iter().any(|secret| secret.name == name) {
            secrets.push(LocalObjectReference { name });
        }
    }
    problems.none_or(template)
}

/// Names of containers are unique across three lists.
fn misplaced(draft: &Draft, spec: &PodSpec, problems: &mut Problems) {
    let init_containers = spec.init_containers.iter().flatten().map(|present| ("initContainers", &present.name));
    let containers = spec.containers.iter().map(|present| ("containers", &present.name));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|present| ("ephemeralContainers", &present.name));
    for (list, present) in init_containers.chain(containers).chain(ephemeral) {
        if draft.injected().any(|(wanted, container)| container.name == *present && wanted != list) {
            let found = "has the name of an injected container".to_owned();
            problems.collision(format!("spec.{list}[{present}]"), found, "give it another name");
        }
    }
}

fn security(wanted: &PodSecurityContext, spec: &mut PodSpec, problems: &mut Problems) {
    if *wanted == PodSecurityContext::default() {
        return;
    }
    let present = spec.security_context.get_or_insert_default();
    for pod_security::Difference { path, found } in pod_security::merge(wanted, present) {
        problems.collision(path, found, "remove it, or set it to that");
    }
}

fn volumes(volumes: Vec<Volume>, spec: &mut PodSpec, problems: &mut Problems) {
    if volumes.is_empty() {
        return;
    }
    let present = spec.volumes.get_or_insert_default();
    for volume in volumes {
        match present.iter().find(|present| present.name == volume.name) {
            None => present.push(volume),
            Some(present) => same("volumes", &volume.name, &recognise::differences(&volume, present), problems),
        }
    }
}

/// Inserts containers before the user's, each after those that were added before it. Containers that exist stay where they are.
fn in_order(ordered: &[InOrder], spec: &mut PodSpec, problems: &mut Problems) {
    if ordered.is_empty() {
        return;
    }
    let present = spec.init_containers.get_or_insert_default();
    let mut next = 0;
    for InOrder { container, after } in ordered {
        let Some(index) = position(present, &container.name) else {
            present.insert(next, container.clone());
            next += 1;
            continue;
        };
        let differences = recognise::differences(container, &present[index]);
        same("initContainers", &container.name, &differences, problems);
        let waits_for = after.iter().find(|earlier| position(present, earlier).is_some_and(|earlier| earlier > index));
        if let Some(earlier) = waits_for {
            let path = format!("spec.initContainers[{}]", container.name);
            let remedy = "move it behind that, or remove both";
            problems.collision(path, format!("comes before {earlier:?}, which it has to wait for"), remedy);
        }
        next = next.max(index + 1);
    }
}

fn position(containers: &[Container], name: &str) -> Option<usize> {
    containers.iter().position(|container| container.name == name)
}

fn beside(list: &str, container: Container, present: &mut Vec<Container>, problems: &mut Problems) {
    match position(present, &container.name) {
        None => present.push(container),
        Some(index) => same(list, &container.name, &recognise::differences(&container, &present[index]), problems),
    }
}

/// How many differences a message has at most.
const LISTED_DIFFERENCES: usize = 3;

/// Reports an item of the template that has the name of an injected one, and differs. If one field does, that is named.
fn same(list: &str, name: &str, differences: &[Difference], problems: &mut Problems) {
    let path = format!("spec.{list}[{name}]");
    match differences {
        [] => {}
        [Difference { path: field, found }] => {
            let found = match found.as_str() {
                "differs" => "differs from the injected one".to_owned(),
                found => format!("{found}, unlike in the injected one"),
            };
            let what = if list == "volumes" { "volume" } else { "container" };
            problems.collision(format!("{path}.{field}"), found, format!("rename or remove the {what}"));
        }
        all => {
            let more = all.len().saturating_sub(LISTED_DIFFERENCES);
            let more = if more == 0 { String::new() } else { format!(", and {more} more") };
            let listed: Vec<_> = all.iter().take(LISTED_DIFFERENCES).map(ToString::to_string).collect();
            let found = format!("exists, and differs from the injected one: {}{more}", listed.join(", "));
            problems.collision(path, found, "rename or remove it");
        }
    }
}

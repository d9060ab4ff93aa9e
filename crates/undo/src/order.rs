//! The order of steps: what others need comes first.

use std::collections::HashMap;

use serde_json::Value;

use crate::document::text;
use crate::step::{Action, Step, Wave};

/// Kinds in the order in which they are created, by group. Other kinds, such as custom resources, come before workloads.
const FIRST: &[&[(&str, &str)]] = &[
    &[("apiextensions.k8s.io", "CustomResourceDefinition")],
    &[("", "Namespace")],
    &[
        ("scheduling.k8s.io", "PriorityClass"),
        ("storage.k8s.io", "StorageClass"),
        ("node.k8s.io", "RuntimeClass"),
        ("networking.k8s.io", "IngressClass"),
        ("", "Node"),
    ],
    &[("", "ServiceAccount")],
    &[("rbac.authorization.k8s.io", "ClusterRole"), ("rbac.authorization.k8s.io", "Role")],
    &[("rbac.authorization.k8s.io", "ClusterRoleBinding"), ("rbac.authorization.k8s.io", "RoleBinding")],
    &[("", "Secret"), ("", "ConfigMap"), ("networking.k8s.io", "NetworkPolicy")],
    &[("", "PersistentVolume")],
    &[("", "PersistentVolumeClaim")],
    &[("", "Service")],
];
/// Kinds that follow all others, by group.
const LAST: &[&[(&str, &str)]] = &[
    &[
        ("", "Pod"),
        ("", "ReplicationController"),
        ("apps", "ReplicaSet"),
        ("apps", "Deployment"),
        ("apps", "StatefulSet"),
        ("apps", "DaemonSet"),
        ("batch", "Job"),
        ("batch", "CronJob"),
    ],
    &[("autoscaling", "HorizontalPodAutoscaler"), ("policy", "PodDisruptionBudget"), ("networking.k8s.io", "Ingress")],
    REJECTING,
];
/// Kinds that may reject the creation of others.
const REJECTING: &[(&str, &str)] = &[
    ("", "ResourceQuota"),
    ("", "LimitRange"),
    ("apiregistration.k8s.io", "APIService"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
];
/// Maximum number of owners above an object.
const MAX_DEPTH: usize = 16;

fn rank(step: &Step) -> usize {
    let object = &step.object;
    let is_in = |kinds: &[(&str, &str)]| kinds.iter().any(|(group, kind)| object.is(group, kind));
    let first = FIRST.iter().position(|kinds| is_in(kinds));
    let last = LAST.iter().position(|kinds| is_in(kinds));
    first.or(last.map(|last| FIRST.len() + 1 + last)).unwrap_or(FIRST.len())
}

/// Sorts steps. Owners come before what they own. Deletions come last, in reverse; but what may reject other steps is deleted
/// first.
pub fn sort(steps: &mut [Step]) {
    let ranks: Vec<usize> = steps.iter().map(rank).collect();
    let by_uid: HashMap<String, usize> =
        steps.iter().enumerate().filter_map(|(at, step)| Some((step.old_uid()?, at))).collect();
    let places: Vec<(usize, usize)> = (0..steps.len()).map(|at| place(steps, &ranks, &by_uid, at, 0)).collect();
    let highest = FIRST.len() + LAST.len();
    for (step, (rank, depth)) in steps.iter_mut().zip(places) {
        let is_rejecting = REJECTING.iter().any(|(group, kind)| step.object.is(group, kind));
        step.wave = Wave(match &step.action {
            Action::Delete { .. } if is_rejecting => 0,
            Action::Delete { .. } => (2 * highest + 4 - rank) * (MAX_DEPTH + 1) + MAX_DEPTH - depth,
            _ => (1 + rank) * (MAX_DEPTH + 1) + depth,
        });
    }
    steps.sort_by(|one, other| (one.wave, &one.object).cmp(&(other.wave, &other.object)));
}

/// Returns the rank of an object, which is not lower than that of its owners in the plan, and the number of owners above it.
fn place(steps: &[Step], ranks: &[usize], by_uid: &HashMap<String, usize>, at: usize, depth: usize) -> (usize, usize) {
    let owners = steps[at].target().and_then(|object| object.pointer("/metadata/ownerReferences"));
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    let owners = owners.filter_map(|owner| by_uid.get(text(owner, "/uid"))).filter(|owner| **owner != at);
    let own = (ranks[at], 0);
    if depth >= MAX_DEPTH {
        return own;
    }
    owners.fold(own, |(rank, above), owner| {
        let (owner, of_owner) = place(steps, ranks, by_uid, *owner, depth + 1);
        (rank.max(owner), above.max(of_owner + 1).min(MAX_DEPTH))
    })
}

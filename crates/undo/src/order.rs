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
        steps.iter().enumerate().filter_map(|(at, step)| Some((step.owner_uid()?, at))).collect();
    let mut places = Places { steps, ranks: &ranks, by_uid: &by_uid, known: vec![None; steps.len()] };
    let places: Vec<(usize, usize)> = (0..steps.len()).map(|at| places.of(at, 0)).collect();
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

/// The ranks of objects, which are not lower than those of their owners in the plan, and the numbers of owners above them.
struct Places<'a> {
    steps: &'a [Step],
    ranks: &'a [usize],
    by_uid: &'a HashMap<String, usize>,
    /// Each is computed once. In a circle of owners, that of the step where the circle is entered counts alone.
    known: Vec<Option<(usize, usize)>>,
}

impl Places<'_> {
    fn of(&mut self, at: usize, depth: usize) -> (usize, usize) {
        let own = (self.ranks[at], 0);
        if let Some(known) = self.known[at] {
            return known;
        }
        if depth >= MAX_DEPTH {
            return own;
        }
        self.known[at] = Some(own);
        let owners = self.steps[at].target().and_then(|object| object.pointer("/metadata/ownerReferences"));
        let owners = owners.and_then(Value::as_array).into_iter().flatten();
        let owners: Vec<usize> = owners.filter_map(|owner| self.by_uid.get(text(owner, "/uid")).copied()).collect();
        let place = owners.into_iter().filter(|owner| *owner != at).fold(own, |(rank, above), owner| {
            let (owner, of_owner) = self.of(owner, depth + 1);
            (rank.max(owner), above.max(of_owner + 1).min(MAX_DEPTH))
        });
        self.known[at] = Some(place);
        place
    }
}

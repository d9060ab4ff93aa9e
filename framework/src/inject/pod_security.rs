//! The security context of the pod.

use k8s_openapi::api::core::v1::{PodSecurityContext, Sysctl};

use super::problem::Problems;

/// When kubelet changes the owner of a volume's files to the [`fs_group`](PodSecurity::fs_group).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsGroupChangePolicy {
    /// Each time the volume is mounted, which takes long for many files.
    Always,
    /// Only if the root folder of the volume has another owner.
    OnRootMismatch,
}

/// What injected containers need of the pod's security context, for [`Pod::security`](super::Pod::security).
///
/// It holds for the user's containers, too. If the user's template has another value, that is a collision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSecurity {
    pub(super) context: PodSecurityContext,
}

impl PodSecurity {
    /// Creates it without requirements.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the group that can read and write volumes; by default that of a volume's files.
    #[must_use]
    pub fn fs_group(mut self, group: u32) -> Self {
        self.context.fs_group = Some(group.into());
        self
    }

    /// Sets when kubelet changes the owner of a volume's files.
    #[must_use]
    pub fn fs_group_change_policy(mut self, policy: FsGroupChangePolicy) -> Self {
        self.context.fs_group_change_policy = Some(format!("{policy:?}"));
        self
    }

    /// Adds a group to those of all containers. The user's groups stay.
    #[must_use]
    pub fn supplemental_group(mut self, group: u32) -> Self {
        self.context.supplemental_groups.get_or_insert_default().push(group.into());
        self
    }

    /// Sets a kernel parameter. Kubernetes allows only some without the node's permission.
    #[must_use]
    pub fn sysctl(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.context.sysctls.get_or_insert_default().push(Sysctl { name: name.into(), value: value.into() });
        self
    }
}

/// Reports what an API server would reject.
pub(super) fn check(wanted: &PodSecurityContext, problems: &mut Problems) {
    let groups = wanted.supplemental_groups.iter().flatten().map(|group| ("supplementalGroups", group));
    for (field, group) in wanted.fs_group.iter().map(|group| ("fsGroup", group)).chain(groups) {
        if i32::try_from(*group).is_err() {
            problems.invalid(path(field), format!("is {group}"), "use a number up to 2147483647");
        }
    }
    for Sysctl { name, .. } in wanted.sysctls.iter().flatten() {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        let is_part = |part: &str| !part.is_empty() && part.chars().all(is_inner);
        if name.len() > 253 || !name.split(['.', '/']).all(is_part) {
            let remedy = "use a name like net.ipv4.ip_unprivileged_port_start";
            problems.invalid(path(&format!("sysctls[{name}]")), "has an invalid name".to_owned(), remedy);
        }
    }
}

/// A field that has another value than the wanted one.
pub(super) struct Difference {
    pub(super) path: String,
    pub(super) found: String,
}

/// Adds to `present` what is missing in it. Returns the fields that differ.
pub(super) fn merge(wanted: &PodSecurityContext, present: &mut PodSecurityContext) -> Vec<Difference> {
    let mut differences = Vec::new();
    let mut report = |path: String, found: String| differences.push(Difference { path, found });
    if let Some((theirs, ours)) = other(wanted.fs_group.as_ref(), &mut present.fs_group) {
        report(path("fsGroup"), format!("is {theirs}, not {ours}"));
    }
    let policy = &mut present.fs_group_change_policy;
    if let Some((theirs, ours)) = other(wanted.fs_group_change_policy.as_ref(), policy) {
        report(path("fsGroupChangePolicy"), format!("is {theirs:?}, not {ours:?}"));
    }
    for group in wanted.supplemental_groups.iter().flatten() {
        let groups = present.supplemental_groups.get_or_insert_default();
        if !groups.contains(group) {
            groups.push(*group);
        }
    }
    for wanted in wanted.sysctls.iter().flatten() {
        let sysctls = present.sysctls.get_or_insert_default();
        match sysctls.iter().find(|present| present.name == wanted.name) {
            None => sysctls.push(wanted.clone()),
            Some(present) if present.value == wanted.value => {}
            Some(present) => {
                let found = format!("is {:?}, not {:?}", present.value, wanted.value);
                report(path(&format!("sysctls[{}]", wanted.name)), found);
            }
        }
    }
    differences
}

/// Sets a missing value. Returns both if they differ.
fn other<T: Clone + PartialEq>(wanted: Option<&T>, present: &mut Option<T>) -> Option<(T, T)> {
    let wanted = wanted?;
    let present = present.get_or_insert_with(|| wanted.clone());
    (present != wanted).then(|| (present.clone(), wanted.clone()))
}

fn path(field: &str) -> String {
    format!("spec.securityContext.{field}")
}

//! Fields of a container that the builder does not know.

use k8s_openapi::api::core::v1::Container as Raw;
use serde_json::Value;

use super::Container;
use crate::inject::kind::Kind;

impl<K: Kind> Container<'_, '_, K> {
    /// Changes the container as Kubernetes has it, for fields that this builder does not know.
    ///
    /// ```
    /// use trishanku_framework::inject::Pod;
    ///
    /// fn build(pod: &mut Pod<'_>) {
    ///     pod.container("shell", "shell:1").raw(|container| container.tty = Some(true)).add();
    /// }
    /// ```
    ///
    /// `change` can only add. [`finish`](crate::inject::Injector::finish) reports what it changed or removed of that which
    /// was set before: the name, ports with handles, mounts, variables, the security context. What it adds is checked like
    /// everything else: names, paths, ports and quantities, probes and hooks of ports that are not declared, mounts of
    /// volumes that the pod does not have, writable mounts of read-only volumes. The restart policy follows from the kind of
    /// the container.
    pub fn raw(mut self, change: impl FnOnce(&mut Raw)) -> Self {
        let before = self.unadded.raw.clone();
        change(&mut self.unadded.raw);
        let after = &self.unadded.raw;
        self.unadded.has_security |= after.security_context != before.security_context;
        let mut undone = undone(&before, after);
        if after.restart_policy.is_some() {
            undone.push("restartPolicy".to_owned());
        }
        // The problems name the container.
        self.unadded.raw.name = before.name;
        for field in undone {
            let remedy = "only add fields in `raw`, and use the methods of the builder for the others";
            self.unadded.invalid(&field, "was changed by `raw`", remedy);
        }
        self
    }
}

/// Returns the fields of `before` that `after` does not have, or has with other values.
fn undone(before: &Raw, after: &Raw) -> Vec<String> {
    match (serde_json::to_value(before), serde_json::to_value(after)) {
        (Ok(Value::Object(before)), Ok(Value::Object(after))) => {
            let is_undone = |(field, value): &(String, Value)| !after.get(field).is_some_and(|after| has(after, value));
            before.into_iter().filter(is_undone).map(|(field, _)| field).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether `after` has all that `before` has. Elements of lists may be added, but keep their order and content.
fn has(after: &Value, before: &Value) -> bool {
    match (after, before) {
        (Value::Object(after), Value::Object(before)) => {
            before.iter().all(|(field, before)| after.get(field).is_some_and(|after| has(after, before)))
        }
        (Value::Array(after), Value::Array(before)) => {
            let mut after = after.iter();
            before.iter().all(|before| after.any(|after| after == before))
        }
        (after, before) => after == before,
    }
}

//! Which changes trigger a reconcile.

use kube::core::ObjectMeta;
use serde_json::Value;

use crate::cache::Change;
use crate::queue::Cause;
use crate::{Key, Kind, Object};

/// Returns why a changed object is to be reconciled. A changed status is no cause: a controller that writes it would trigger
/// itself.
///
/// Kinds without generations are the exception. A `ConfigMap` has no status, but a Node, a Namespace, a Service and a
/// `PersistentVolumeClaim` have one, which other programs write. It triggers a reconcile, but is not a new desired state that
/// ends a back-off.
pub(super) fn cause<K: Object>(change: &Change<'_, K>) -> Option<Cause> {
    let (before, after) = match (change.before, change.after) {
        // Nothing is left to do; what it owned is garbage-collected.
        (_, None) => return None,
        (None, Some(_)) => return Some(Cause::Wanted),
        (Some(before), Some(after)) => (before.meta(), after.meta()),
    };
    let replaced = before.uid != after.uid;
    if replaced || before.generation != after.generation || before.deletion_timestamp != after.deletion_timestamp {
        return Some(Cause::Wanted);
    }
    if after.generation.is_none() {
        return Some(if is_same_content(change) { Cause::Changed } else { Cause::Wanted });
    }
    let described = before.labels != after.labels || before.annotations != after.annotations;
    (described || before.finalizers != after.finalizers).then_some(Cause::Changed)
}

/// Returns whether only metadata and status differ, if anything does.
fn is_same_content<K: Object>(change: &Change<'_, K>) -> bool {
    let content = |object: &K| {
        let mut value = serde_json::to_value(object).ok()?;
        let fields = value.as_object_mut()?;
        ["metadata", "status"].into_iter().for_each(|field| drop(fields.remove(field)));
        Some(value)
    };
    let content = |object: Option<&K>| -> Option<Value> { object.and_then(content) };
    content(change.before) == content(change.after)
}

/// A kind whose objects control others.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    group: String,
    kind: String,
    is_namespaced: bool,
}

impl Owner {
    pub(super) fn of_kind<K: Object>(kind: &Kind<K>) -> Self {
        let (group, name) = (kind.group().into_owned(), kind.name().into_owned());
        Self { group, kind: name, is_namespaced: kind.is_namespaced() }
    }

    /// Returns the key of the object of this kind that controls the object with this metadata.
    pub(super) fn of(&self, metadata: &ObjectMeta) -> Option<Key> {
        let references = metadata.owner_references.iter().flatten();
        let controller = references.clone().find(|reference| reference.controller == Some(true))?;
        // The reference may name another version of the kind.
        let group = controller.api_version.split_once('/').map_or("", |(group, _)| group);
        if group != self.group || controller.kind != self.kind {
            return None;
        }
        Some(match metadata.namespace.as_deref().filter(|_| self.is_namespaced) {
            Some(namespace) => Key::namespaced(namespace, &controller.name),
            None => Key::cluster(&controller.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn deployment(change: impl FnOnce(&mut ObjectMeta)) -> Deployment {
        let mut deployment = Deployment::default();
        deployment.metadata.generation = Some(1);
        deployment.metadata.resource_version = Some("1".to_owned());
        change(&mut deployment.metadata);
        deployment
    }

    fn changed(change: impl FnOnce(&mut ObjectMeta)) -> Option<Cause> {
        let (before, after) = (deployment(|_| {}), deployment(change));
        cause(&Change { before: Some(&before), after: Some(&after), initial: false })
    }

    #[test]
    fn a_change_of_the_status_alone_triggers_nothing() {
        assert_eq!(changed(|metadata| metadata.resource_version = Some("2".to_owned())), None);
        assert_eq!(changed(|metadata| metadata.generation = Some(2)), Some(Cause::Wanted));
        assert_eq!(changed(|metadata| metadata.uid = Some("other".to_owned())), Some(Cause::Wanted));
        assert_eq!(
            changed(|metadata| metadata.labels = Some([("a".to_owned(), "b".to_owned())].into())),
            Some(Cause::Changed)
        );
        assert_eq!(changed(|metadata| metadata.finalizers = Some(vec!["a/b".to_owned()])), Some(Cause::Changed));
    }

    #[test]
    fn new_objects_are_wanted_and_deleted_ones_nothing() {
        let object = deployment(|_| {});
        let change = |before, after| cause(&Change { before, after, initial: false });
        assert_eq!(change(None, Some(&object)), Some(Cause::Wanted));
        assert_eq!(change(Some(&object), None), None);
    }

    #[test]
    fn the_status_of_a_kind_without_generations_triggers_but_does_not_end_a_back_off() {
        fn changed<K: Object + Default>(change: impl FnOnce(&mut K)) -> Option<Cause> {
            let (before, mut after) = (K::default(), K::default());
            change(&mut after);
            cause(&Change { before: Some(&before), after: Some(&after), initial: false })
        }
        let labels = || Some([("a".to_owned(), "b".to_owned())].into());
        assert_eq!(changed(|map: &mut ConfigMap| map.data = labels()), Some(Cause::Wanted));
        assert_eq!(changed(|map: &mut ConfigMap| map.metadata.labels = labels()), Some(Cause::Changed));
        assert_eq!(
            changed(|node: &mut Node| node.spec.get_or_insert_default().unschedulable = Some(true)),
            Some(Cause::Wanted)
        );
        let heartbeat = |node: &mut Node| node.status.get_or_insert_default().phase = Some("Running".to_owned());
        assert_eq!(changed(heartbeat), Some(Cause::Changed));
    }

    #[test]
    fn the_owner_is_the_controller_of_the_right_kind_in_the_right_place() {
        fn owner<K: Object>(kind: &Kind<K>, object: &Pod) -> Option<Key> {
            Owner::of_kind(kind).of(&object.metadata)
        }
        let reference = |api_version: &str, kind: &str, controller| OwnerReference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: "it".to_owned(),
            uid: "1".to_owned(),
            controller: Some(controller),
            block_owner_deletion: None,
        };
        let pod = |references| {
            let mut pod = Pod::default();
            pod.metadata.namespace = Some("x".to_owned());
            pod.metadata.owner_references = Some(references);
            pod
        };
        let set = pod(vec![reference("v1", "Node", false), reference("apps/v1", "ReplicaSet", true)]);
        assert_eq!(owner(&Kind::<ReplicaSet>::known(), &set), Some(Key::namespaced("x", "it")));
        assert_eq!((owner(&Kind::<Deployment>::known(), &set), owner(&Kind::<Node>::known(), &set)), (None, None));
        assert_eq!(owner(&Kind::<ReplicaSet>::known(), &pod(vec![reference("other/v1", "ReplicaSet", true)])), None);
        assert_eq!(owner(&Kind::<ReplicaSet>::known(), &pod(vec![reference("apps/v1", "ReplicaSet", false)])), None);
        let mirror = pod(vec![reference("v1", "Node", true)]);
        assert_eq!(owner(&Kind::<Node>::known(), &mirror), Some(Key::cluster("it")));
        assert_eq!(owner(&Kind::<Node>::known(), &Pod::default()), None);
    }
}

//! The members of a set: what was applied, and the deletion of what was not.
//!
//! Without the type of the owner, so that the kinds that a controller owns can be a list.

use std::collections::HashMap;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use kube::Client;
use kube::api::{DeleteParams, Preconditions};

use super::changes::lines;
use super::marks::is_by;
use super::{Applied, ApplyError, Change, Deletion, PART_OF, Planned, TARGET};
use crate::cache::Cache;
use crate::{Key, Kind, Object};

/// The members of an owner's set, and how they are written.
pub(crate) struct Members {
    pub(super) client: Client,
    /// The uid of the owner.
    pub(super) owner: Option<String>,
    /// The id of the set.
    pub(super) id: String,
    /// The field manager.
    pub(super) manager: String,
    /// The objects that a prune spares.
    pub(super) desired: HashMap<MemberId, Desired>,
    pub(super) dry: bool,
    pub(super) planned: Vec<Planned>,
}

/// The group and the plural of the kind, and the key of the object: the same in all versions of the kind.
pub(crate) type MemberId = (String, String, Key);

/// Why an object is desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Desired {
    /// It is kept, or its apply did not succeed.
    Kept,
    /// It was applied.
    Applied,
}

/// Returns what identifies an object, whichever version and Rust type of its kind a cache has.
pub(super) fn member_id<K: Object>(kind: &Kind<K>, key: &Key) -> MemberId {
    let plural = K::plural(kind.dynamic()).into_owned();
    (kind.group().into_owned(), plural, key.clone())
}

/// A kind whose objects a controller owns, whichever it is.
pub(crate) trait OwnedKind: Send + Sync {
    /// Deletes the objects that are members, and were not applied. Returns their number.
    fn prune<'a>(&'a self, members: &'a mut Members) -> BoxFuture<'a, Result<usize, ApplyError>>;
}

impl<K: Object> OwnedKind for Cache<K> {
    fn prune<'a>(&'a self, members: &'a mut Members) -> BoxFuture<'a, Result<usize, ApplyError>> {
        members.prune(self).boxed()
    }
}

/// Returns whether two kinds are in the same cache.
pub(crate) fn is_same<K: OwnedKind + ?Sized>(one: &Arc<dyn OwnedKind>, other: &Arc<K>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

impl Members {
    pub(super) async fn prune<K: Object>(&mut self, cache: &Cache<K>) -> Result<usize, ApplyError> {
        let mut pruned = 0;
        for object in cache.owned_by(self.owner.as_deref().unwrap_or_default()) {
            let (key, metadata) = (Key::of(&*object), object.meta());
            let member = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF)) == Some(&self.id);
            // Another controller of the same owner has a set with the same id.
            let ours = member && is_by(&*object, &self.manager);
            let desired = self.desired.contains_key(&member_id(cache.kind(), &key));
            if ours && !desired && metadata.deletion_timestamp.is_none() {
                let dry_run = self.dry;
                tracing::info!(target: TARGET, kind = %cache.kind().name(), object = %key, dry_run, "no longer desired; deleting it");
                pruned += usize::from(self.remove(cache, &key, &*object).await? == Deletion::Deleted);
            }
        }
        Ok(pruned)
    }

    pub(super) async fn remove<K>(&mut self, cache: &Cache<K>, key: &Key, object: &K) -> Result<Deletion, ApplyError>
    where
        K: Object,
    {
        let (kind, lists) = (cache.kind(), cache.lists());
        let api = kind.api(self.client.clone(), key.namespace());
        // Spares an object of the same name that was created meanwhile, and one that has another owner by now. Such a change
        // triggers a reconcile of the previous owner, too.
        let metadata = object.meta();
        let preconditions =
            Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
        let parameters = DeleteParams { dry_run: self.dry, ..DeleteParams::background().preconditions(preconditions) };
        match api.delete(key.name(), &parameters).await {
            Ok(answer) => {
                self.report(kind, key, Applied::Deleted, Vec::new());
                match answer.left().filter(is_being_deleted) {
                    _ if self.dry => {}
                    // The next reconcile may precede the watch event.
                    Some(waiting) => cache.learn(waiting, lists),
                    None => cache.learn_deletion(key, metadata.uid.as_deref()),
                }
                Ok(Deletion::Deleted)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                cache.learn_deletion(key, metadata.uid.as_deref());
                Ok(Deletion::Gone)
            }
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Deletion::Changed),
            Err(error) => {
                let (kind, key) = (kind.name().into_owned(), key.clone());
                Err(ApplyError::NotDeleted { kind, key, source: Box::new(error) })
            }
        }
    }

    /// Logs the changes; records them if this is a dry run.
    pub(super) fn report<K: Object>(&mut self, kind: &Kind<K>, key: &Key, applied: Applied, changes: Vec<Change>) {
        let kind = kind.name();
        for line in lines(&changes) {
            if self.dry {
                tracing::info!(target: TARGET, %kind, object = %key, "would change {line}");
            } else {
                tracing::debug!(target: TARGET, %kind, object = %key, "changed {line}");
            }
        }
        if self.dry {
            self.planned.push(Planned { kind: kind.into_owned(), key: key.clone(), applied, changes });
        }
    }
}

/// Returns whether an object that was deleted still exists. The response for some kinds has the object even if it does not.
fn is_being_deleted(object: &impl Object) -> bool {
    let metadata = object.meta();
    let waits = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
        || metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    metadata.deletion_timestamp.is_some() && waits
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};

    use super::*;

    #[test]
    fn an_object_is_the_same_in_all_versions_of_its_kind_and_in_one_group_only() {
        let id = |group, version| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, "Gate"));
            member_id(&Kind::<DynamicObject>::new(resource, true), &Key::namespaced("plant", "a"))
        };
        assert_eq!(id("example.org", "v1"), id("example.org", "v2"));
        assert_ne!(id("example.org", "v1"), id("example.com", "v1"));
    }
}

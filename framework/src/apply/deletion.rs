//! Deletions of objects that an owner owns.

use kube::api::{DeleteParams, Preconditions};

use super::{Applied, ApplyError, ApplySet, Owned, PART_OF, owner_name};
use crate::cache::Cache;
use crate::{Key, Object};

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is deleted; one with a finalizer, or with time to stop, is being deleted.
    Deleted,
    /// It stays, because it has changed since it was looked at, or another object has its name. Look again: a change of an
    /// [`Owned`] object triggers a reconcile.
    Changed,
    /// It was deleted before.
    Gone,
}

impl<O: Object> ApplySet<'_, O> {
    /// Deletes objects that were applied for this owner before, and not to this set. Returns their number. Call it after all
    /// objects of the kind were applied.
    ///
    /// # Errors
    /// [`ApplyError::NotDeleted`].
    pub async fn prune<K: Object>(&mut self, owned: &Owned<K>) -> Result<usize, ApplyError> {
        let cache = owned.cache();
        let uid = self.owner.meta().uid.as_deref().unwrap_or_default();
        let mut pruned = 0;
        for object in cache.owned_by(uid) {
            let (key, metadata) = (Key::of(&*object), object.meta());
            let member = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF)) == Some(&self.id);
            let wanted = self.applied.contains(&(cache.kind().path(), key.clone()));
            if member && !wanted && metadata.deletion_timestamp.is_none() {
                let dry_run = self.dry;
                tracing::info!(kind = %cache.kind().name(), object = %key, dry_run, "no longer desired; deleting it");
                pruned += usize::from(self.remove(cache, &key, &*object).await? == Deletion::Deleted);
            }
        }
        Ok(pruned)
    }

    /// Deletes one object of this owner, with what it owns itself (in the background), if it is still as `object` is. Sends
    /// nothing for an object that is being deleted already.
    ///
    /// For objects that are not applied each time, such as a history; otherwise, [`prune`](Self::prune) is enough. Once it is
    /// deleted, the cache does not have the object, or has it as one that is being deleted. In a
    /// [dry run](Self::dry_run), nothing changes.
    ///
    /// # Errors
    /// [`ApplyError::NotOurs`] if the owner does not control the object, and [`ApplyError::NotDeleted`].
    pub async fn delete<K: Object>(&mut self, object: &K, owned: &Owned<K>) -> Result<Deletion, ApplyError> {
        let (key, metadata) = (Key::of(object), object.meta());
        let kind = owned.kind().name();
        let ours = self.owner.meta().uid.as_deref();
        let mut references = metadata.owner_references.iter().flatten();
        if !references.any(|owner| owner.controller == Some(true) && Some(&*owner.uid) == ours) {
            return Err(ApplyError::NotOurs { kind: kind.into_owned(), owner: owner_name(object), key });
        }
        if metadata.deletion_timestamp.is_some() {
            return Ok(Deletion::Deleted);
        }
        tracing::info!(%kind, object = %key, dry_run = self.dry, "deleting it");
        self.remove(owned.cache(), &key, object).await
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
}

/// Returns whether an object that was deleted still exists. The response for some kinds has the object even if it does not.
fn is_being_deleted(object: &impl Object) -> bool {
    let metadata = object.meta();
    let waits = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
        || metadata.deletion_grace_period_seconds.is_some_and(|seconds| seconds > 0);
    metadata.deletion_timestamp.is_some() && waits
}

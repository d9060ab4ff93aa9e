//! Deletions of objects that an owner owns.

use super::{ApplyError, ApplySet, Owned, TARGET, owner_name};
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
    /// Deletes objects of **all kinds** that were applied for this owner before, and not to this set: of each kind that the
    /// controller owns ([`Kinds::owned`](crate::Kinds::owned), [`Controller::owns`](crate::Controller::owns)), in the order of their
    /// declarations, and then of those that were applied to this set without being declared. Returns their number. Call it once,
    /// after everything was applied.
    ///
    /// So a kind cannot be forgotten, not even one that nothing was applied of, because it is no longer desired. Of a set that was
    /// created without a controller ([`ApplySet::of`]), only the kinds that were applied to it are known.
    ///
    /// **An object that is created only once**, such as a Secret with a generated password, is not applied when it exists, and would be
    /// deleted: [`keep`](Self::keep) it in each reconcile. If the names are not known, as of a history, [`prune`](Self::prune) the
    /// other kinds, one by one. Objects that another field manager applied are spared. Costs no request if there is nothing to
    /// delete.
    ///
    /// # Errors
    /// [`ApplyError::NotDeleted`] of the first object that cannot be deleted; those before it are.
    pub async fn prune_all(&mut self) -> Result<usize, ApplyError> {
        let mut pruned = 0;
        for kind in self.declared.iter().chain(&self.others) {
            pruned += kind.prune(&mut self.members).await?;
        }
        Ok(pruned)
    }

    /// Deletes objects of one kind that were applied for this owner before, and not to this set. Returns their number. Call it
    /// after all objects of the kind were applied. [`prune_all`](Self::prune_all) is for all kinds.
    ///
    /// # Errors
    /// [`ApplyError::NotDeleted`].
    pub async fn prune<K: Object>(&mut self, owned: &Owned<K>) -> Result<usize, ApplyError> {
        self.members.prune(owned.cache()).await
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
        tracing::info!(target: TARGET, %kind, object = %key, dry_run = self.members.dry, "deleting it");
        self.members.remove(owned.cache(), &key, object).await
    }
}

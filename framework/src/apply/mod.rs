//! Applies the objects that an owner should own: by server-side apply, and only if they differ from the desired state.
//!
//! ```no_run
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use trishanku_framework::Context;
//! use trishanku_framework::apply::{ApplyError, Owned};
//!
//! # async fn example(context: Context, owner: Arc<ConfigMap>, wanted: Vec<Secret>, secrets: &Owned<Secret>) -> Result<(), ApplyError> {
//! let mut set = context.apply_set(&*owner);
//! for secret in wanted {
//!     set.apply(secret, secrets).await?;
//! }
//! // Deletes what was applied before, and is no longer desired.
//! set.prune_all().await?;
//! # Ok(())
//! # }
//! ```
//!
//! **No write when nothing differs.** The desired object is compared with the cached one; fields that only the cached one has
//! (defaults, other people's) do not count. This does not show a field that is no longer desired, so an annotation has the
//! digest of what was applied last. If the comparison cannot decide (a quantity that the server writes differently,
//! `stringData` of a Secret), the object is applied, and the server changes nothing.
//!
//! **Ownership.** The owner becomes the controller, so that changes of the object trigger its reconcile
//! ([`Owned`]), and the object is garbage-collected. An object that has another controller, or none,
//! is not changed. If the cache is [selecting](crate::cache::Caches::cache_selecting), the apiserver is asked first whether there is
//! such an object. An object that the cache does not show (it is newer, or not watched) is applied without
//! force: a field with another manager is not overwritten, and the result is a conflict.
//!
//! **Prune.** Members have the label of an `ApplySet` (`applyset.kubernetes.io/part-of`) with an id that is derived from the
//! owner. An object that has the label and the owner, was applied by the same field manager ([`APPLIED_BY`]), and was not applied to
//! this [`ApplySet`], is deleted, if it is still as the cache has it: of all kinds that the controller owns
//! ([`ApplySet::prune_all`]), or of one ([`ApplySet::prune`]). [`ApplySet::keep`] spares an object that is created only once.
//!
//! **One set per owner and reconcile.** A reconcile that applies the objects of one owner to two sets deletes with each what it
//! applied to the other. Two controllers may have the same owner if their field managers differ: each prunes its own objects. An
//! object that an earlier version of the framework applied has no field manager recorded, until the next apply: any
//! controller of the owner prunes it.
//!
//! [`ApplySet::delete`] deletes one object of the owner, which need not be a member. The owner does not get the marks of an
//! `ApplySet`'s parent: they are how tools find members, which a controller has in its caches, and would cost a write to each
//! owner. `kubectl apply --applyset` refuses an owner without them.
//!
//! **Change log.** Each field that a write changed is a log line at level `debug`: `~ data.level: "3" → "4"`. With
//! [`ApplySet::dry_run`] nothing is written, and the changes are logged that would be. Values of Secrets, and of kinds that
//! [`ApplySet::hiding`] names, are not logged.

mod changes;
mod deletion;
mod differences;
mod error;
mod marks;
mod members;
mod owned;
#[cfg(test)]
mod pruning;
mod write;

use std::collections::HashMap;
use std::sync::Arc;

use kube::{Client, Resource};
use serde::Serialize;

pub use self::changes::{Change, changes};
pub use self::deletion::Deletion;
pub use self::differences::{Difference, differences};
pub use self::error::{ApplyError, Error, OtherError, Result};
use self::marks::id;
pub use self::marks::{APPLIED, APPLIED_BY, PART_OF};
use self::members::{Desired, Members, member_id};
pub(crate) use self::members::{OwnedKind, is_same};
pub use self::owned::Owned;
use crate::{Key, Kind, Object, StaticKind};

/// The target of all log lines, whichever file writes them: filters name it.
const TARGET: &str = module_path!();

/// The result of an apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It matched the desired state; nothing was sent.
    Unchanged,
    /// It was sent; in a [dry run](ApplySet::dry_run), without being stored.
    Written,
    /// It was deleted, because an immutable field differs. The deletion triggers a reconcile, and the next apply creates it.
    Deleted,
}

/// A write that a [dry run](ApplySet::dry_run) left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The kind.
    pub kind: String,
    /// The object.
    pub key: Key,
    /// [`Applied::Written`], or [`Applied::Deleted`], also for a prune and a deletion.
    pub applied: Applied,
    /// The changes, including those that the apiserver would have made; none for a deletion.
    pub changes: Vec<Change>,
}

/// The objects that an owner should own.
pub struct ApplySet<'a, O: Object> {
    kind: Kind<O>,
    owner: &'a O,
    members: Members,
    stamps: bool,
    /// Kinds whose values are not logged, in addition to Secrets.
    hidden: Vec<String>,
    /// The kinds that the controller owns.
    declared: Arc<[Arc<dyn OwnedKind>]>,
    /// Kinds that were applied, and are not declared.
    others: Vec<Arc<dyn OwnedKind>>,
}

impl<'a, O: Object> ApplySet<'a, O> {
    /// Creates an empty set. `manager` is the name of the field manager. It must never change, or fields
    /// of the former name stay, and objects that were applied by it are not pruned.
    pub fn of(owner: &'a O, client: Client, manager: impl Into<String>) -> Self
    where
        O: StaticKind,
    {
        Self::of_kind(&Kind::known(), owner, client, manager)
    }

    /// As [`of`](Self::of), with an owner of any kind.
    pub fn of_kind(kind: &Kind<O>, owner: &'a O, client: Client, manager: impl Into<String>) -> Self {
        Self::declaring(kind, owner, client, manager.into(), Arc::new([]))
    }

    /// Creates an empty set of a controller that owns these kinds.
    pub(crate) fn declaring(
        kind: &Kind<O>,
        owner: &'a O,
        client: Client,
        manager: String,
        declared: Arc<[Arc<dyn OwnedKind>]>,
    ) -> Self {
        let (id, uid) = (id(kind, owner), owner.meta().uid.clone());
        let (desired, planned) = (HashMap::new(), Vec::new());
        let members = Members { client, owner: uid, id, manager, desired, dry: false, planned };
        let (kind, hidden, others) = (kind.clone(), Vec::new(), Vec::new());
        Self { kind, owner, members, stamps: false, hidden, declared, others }
    }

    /// Stamps created objects with the [trace](crate::telemetry) of the reconcile, if it is sampled: their reconciles link to it.
    ///
    /// Existing objects keep their stamp. Otherwise an object that cannot be compared would change with every apply.
    #[must_use]
    pub fn stamping_traces(mut self) -> Self {
        self.stamps = true;
        self
    }

    /// Makes this a dry run: the apiserver validates and completes the objects as usual (`dryRun=All`), but stores nothing.
    /// The result is in [`planned`](Self::planned), and in the log at level `info`.
    ///
    /// Only this set is dry: the [status](crate::status) and finalizers are written nevertheless.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.members.dry = true;
        self
    }

    /// Hides the values of these kinds, as those of Secrets, and the names of their fields, in the log and in
    /// [`planned`](Self::planned): `example.org/Vault`, or the kind alone in the core group.
    #[must_use]
    pub fn hiding<S: Into<String>>(mut self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.hidden.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// Returns what a [dry run](Self::dry_run) has not written so far; always empty otherwise.
    pub fn planned(&self) -> &[Planned] {
        &self.members.planned
    }

    /// Applies `wanted`, unless the object in `owned` matches it. Without a name or a namespace, it gets the owner's.
    ///
    /// # Errors
    /// [`ApplyError`]; [`ApplyError::AppliedTwice`] if an object of this kind and name was applied to this set before.
    pub async fn apply<K: Object + Serialize>(&mut self, wanted: K, owned: &Owned<K>) -> Result<Applied, ApplyError> {
        self.make(wanted, owned, false).await
    }

    /// As [`apply`](Self::apply), but deletes the object first if an immutable field differs: if the apiserver refuses the
    /// change, and would accept a new object, which a dry run shows. Only for objects that may be lost.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub async fn apply_or_recreate<K>(&mut self, wanted: K, owned: &Owned<K>) -> Result<Applied, ApplyError>
    where
        K: Object + Serialize,
    {
        self.make(wanted, owned, true).await
    }

    /// Marks an object as desired without applying it, so that a [prune](Self::prune_all) spares it: for an object that is created
    /// once, such as a Secret with a generated password.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::Secret;
    /// # use trishanku_framework::{Key, StaticKind};
    /// # use trishanku_framework::apply::{ApplyError, ApplySet, Owned};
    /// # async fn example<O: StaticKind>(
    /// #     mut set: ApplySet<'_, O>, key: Key, password: impl Fn() -> Secret, secrets: &Owned<Secret>,
    /// # ) -> Result<(), ApplyError> {
    /// if secrets.get(&key).is_some() {
    ///     set.keep(&key, secrets);
    /// } else {
    ///     set.apply(password(), secrets).await?;
    /// }
    /// set.prune_all().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It sends nothing, and the object need not exist. Call it in each reconcile that prunes.
    pub fn keep<K: Object>(&mut self, key: &Key, owned: &Owned<K>) {
        self.members.desired.entry(member_id(owned.kind(), key)).or_insert(Desired::Kept);
    }
}

impl<O: Object> std::fmt::Debug for ApplySet<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApplySet")
            .field("owner", &Key::of(self.owner))
            .field("desired", &self.members.desired.len())
            .finish_non_exhaustive()
    }
}

fn owner_name(object: &impl Resource) -> Option<String> {
    let mut references = object.meta().owner_references.iter().flatten();
    references
        .find(|reference| reference.controller == Some(true))
        .map(|owner| format!("{} {}", owner.kind, owner.name))
}

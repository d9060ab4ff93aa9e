//! Makes what an object owns as it should be: by server-side apply, and only if it is not.
//!
//! ```no_run
//! use std::sync::Arc;
//! use k8s_openapi::api::core::v1::{ConfigMap, Secret};
//! use trishanku_framework::apply::{ApplyError, Set};
//! use trishanku_framework::{Context, cache::Cache};
//!
//! # async fn example(context: Context, owner: Arc<ConfigMap>, wanted: Vec<Secret>, secrets: &Cache<Secret>) -> Result<(), ApplyError> {
//! let mut set = Set::of(&*owner, context.client.clone(), "tank-controller");
//! for secret in wanted {
//!     set.apply(secret, secrets).await?;
//! }
//! // Secrets that were applied before, and are not wanted any more.
//! set.prune(secrets).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **No write when nothing differs.** What is wanted is compared with what the cache has; fields that nobody asked for (defaults, other people's)
//! do not count. A field that was wanted and is not any more cannot be seen that way, so an annotation has the digest of what was applied
//! last. If the comparison cannot tell (a quantity that the server writes in another way, `stringData` of a Secret), it is applied, and the
//! server changes nothing.
//!
//! **Ownership.** The owner is put on as controller, so that it is told of changes ([`owns`](crate::Controller::owns)), and garbage is
//! collected. What another one controls, or nobody, is not touched. What the cache does not show (an object that is newer than it, or that it does not
//! watch) is applied without force: a field that somebody else manages is not overwritten, and the answer is a conflict.
//!
//! **Prune.** Members have the label of an `ApplySet` (`applyset.kubernetes.io/part-of`), whose id is that of the owner. What has the label and the
//! owner, and was not applied to this [`Set`], is deleted, if it is still what the cache has.
//!
//! **What changes.** Every field that a write changed is a line of the log at level `debug`: `~ data.level: "3" → "4"`. With [`Set::dry_run`] nothing is
//! written, and what it would write is logged. Of Secrets, and of kinds that [`Set::hiding`] names, no values are logged.

mod changes;
mod differences;
mod error;
mod marks;
#[cfg(test)]
mod pruning;

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource};
use serde::Serialize;

pub use self::changes::{Change, changes};
use self::changes::{Hidden, changes_of};
pub use self::differences::{Difference, differences};
pub use self::error::ApplyError;
pub use self::marks::{APPLIED, PART_OF};
use self::marks::{fingerprint, id, sign, stamp};
use crate::cache::Cache;
use crate::{Key, Kind, Known, Object};

/// What an apply came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// It was as it should be; nothing was sent.
    Unchanged,
    /// It was sent; in a [dry run](Set::dry_run) only to be looked at.
    Written,
    /// It had to be deleted first, since a field that cannot change differs. Its end is a change, and the next apply makes it.
    Deleted,
}

/// What a [dry run](Set::dry_run) would have written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The kind.
    pub kind: String,
    /// Which.
    pub key: Key,
    /// [`Applied::Written`], or [`Applied::Deleted`] also for what would have been pruned.
    pub applied: Applied,
    /// Field by field, with what the apiserver would have added; none of what would have been deleted.
    pub changes: Vec<Change>,
}

/// What one owner should own.
pub struct Set<'a, O: Object> {
    kind: Kind<O>,
    owner: &'a O,
    client: Client,
    manager: String,
    id: String,
    /// By where their kinds are.
    applied: HashSet<(String, Key)>,
    stamps: bool,
    dry: bool,
    /// Kinds of which no values are logged, besides Secrets.
    hidden: Vec<String>,
    planned: Vec<Planned>,
}

impl<'a, O: Object> Set<'a, O> {
    /// Nothing yet. `manager` is the name under which fields are managed: it must stay the same for ever, or fields of the former name stay too.
    pub fn of(owner: &'a O, client: Client, manager: impl Into<String>) -> Self
    where
        O: Known,
    {
        Self::of_kind(&Kind::known(), owner, client, manager)
    }

    /// As [`of`](Self::of), with an owner of any kind.
    pub fn of_kind(kind: &Kind<O>, owner: &'a O, client: Client, manager: impl Into<String>) -> Self {
        let id = id(kind, owner);
        let (kind, manager, applied, planned) = (kind.clone(), manager.into(), HashSet::new(), Vec::new());
        Self { kind, owner, client, manager, id, applied, stamps: false, dry: false, hidden: Vec::new(), planned }
    }

    /// Stamps what it creates with the [trace](crate::telemetry) of the reconcile, if that is kept: whoever reconciles it links to this one.
    ///
    /// The stamp of what is there stays as it is. Otherwise what cannot be compared would be written again and again.
    #[must_use]
    pub fn stamping_traces(mut self) -> Self {
        self.stamps = true;
        self
    }

    /// Writes nothing: the apiserver is asked what it would do (`dryRun=All`), with all that checks and changes an object there. What it would is in
    /// [`planned`](Self::planned), and in the log at level `info`.
    ///
    /// Only this set is dry: a [status](crate::status) is written nevertheless, and so is a finalizer.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry = true;
        self
    }

    /// Hides objects of these kinds like Secrets, and the names of their fields, in the log and in [`planned`](Self::planned):
    /// `example.org/Vault`, or the kind alone in the core group.
    #[must_use]
    pub fn hiding<S: Into<String>>(mut self, kinds: impl IntoIterator<Item = S>) -> Self {
        self.hidden.extend(kinds.into_iter().map(Into::into));
        self
    }

    /// What a [dry run](Self::dry_run) would have written so far; always empty without it.
    pub fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Makes `wanted` so, if `cache` does not have it so already. Without a namespace it is in the owner's.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub async fn apply<K: Object + Serialize>(&mut self, wanted: K, cache: &Cache<K>) -> Result<Applied, ApplyError> {
        self.make(wanted, cache, false).await
    }

    /// As [`apply`](Self::apply), and deletes it first if a field differs that cannot be changed. Only for objects whose loss is none.
    ///
    /// # Errors
    /// [`ApplyError`].
    pub async fn apply_or_recreate<K>(&mut self, wanted: K, cache: &Cache<K>) -> Result<Applied, ApplyError>
    where
        K: Object + Serialize,
    {
        self.make(wanted, cache, true).await
    }

    async fn make<K>(&mut self, mut wanted: K, cache: &Cache<K>, recreate: bool) -> Result<Applied, ApplyError>
    where
        K: Object + Serialize,
    {
        let (key, kind) = (self.put_in_place(cache.kind(), &mut wanted)?, || cache.kind().name().into_owned());
        let lists = cache.lists();
        let encode = |source| ApplyError::Encode { kind: kind(), key: key.clone(), source };
        let ours = self.owner.meta().uid.as_deref();
        let asked = fingerprint(&mut wanted).map_err(encode)?;
        if cache.is_settled(&key, ours, asked) {
            self.applied.insert((cache.kind().path(), key));
            return Ok(Applied::Unchanged);
        }
        let known = cache.known(&key);
        if let Some(known) = known.as_ref().filter(|known| known.owner() != ours) {
            return Err(ApplyError::NotOurs { kind: kind(), owner: owner_name(&*known.object().object()), key });
        }
        self.applied.insert((cache.kind().path(), key.clone()));
        let mut content = sign(&mut wanted).map_err(encode)?;
        let live = || known.as_ref().map(|known| known.object().object());
        if self.stamps {
            stamp(&mut wanted, live().as_deref());
        }
        content["metadata"]["annotations"] = serde_json::to_value(&wanted.meta().annotations).map_err(encode)?;
        let mut wanted = content;
        // An object need not say what it is: those of a list do not, if their kind is not known before.
        for (field, _) in cache.kind().types() {
            wanted.as_object_mut().and_then(|wanted| wanted.remove(field));
        }
        if let Some(known) = &known {
            let differences = differences(&wanted, &known.object().value());
            if differences.is_empty() {
                // Until it changes, or something else is wanted, nobody has to look again.
                cache.settle(&key, known, asked);
                return Ok(Applied::Unchanged);
            }
            // Values may be secrets.
            let hidden = Hidden::of(cache.kind(), &self.hidden);
            let mut fields: Vec<_> = differences.iter().map(|difference| hidden.path(&difference.path)).collect();
            fields.dedup();
            tracing::info!(kind = kind(), object = %key, ?fields, dry_run = self.dry, "differs, and is applied");
        }
        for (field, value) in cache.kind().types() {
            wanted[field] = value.into();
        }
        let api = cache.kind().api(self.client.clone(), key.namespace());
        // What is not in the cache may be there all the same, and somebody's: that is not to be overwritten.
        let force = known.is_some();
        let parameters = PatchParams { dry_run: self.dry, force, ..PatchParams::apply(&self.manager) };
        match api.patch(key.name(), &parameters, &Patch::Apply(&wanted)).await {
            Ok(written) => {
                if self.dry || tracing::enabled!(tracing::Level::DEBUG) {
                    let hidden = Hidden::of(cache.kind(), &self.hidden);
                    let changes = changes_of(hidden, live().as_deref(), &written);
                    self.tell(cache.kind(), &key, Applied::Written, changes);
                }
                if !self.dry {
                    cache.learn(written, lists);
                }
                Ok(Applied::Written)
            }
            Err(error) => match live().filter(|_| recreate && is_immutable(&error)) {
                Some(live) => {
                    let dry_run = self.dry;
                    tracing::info!(kind = kind(), object = %key, dry_run, "is deleted, since a field cannot be changed");
                    self.delete(cache.kind(), &key, &*live).await?;
                    Ok(Applied::Deleted)
                }
                None => Err(ApplyError::Refused { kind: kind(), key, source: Box::new(error) }),
            },
        }
    }

    /// Deletes what was applied for this owner once, and not to this set. Call it after everything of the kind was applied.
    ///
    /// # Errors
    /// [`ApplyError::Refused`].
    pub async fn prune<K: Object>(&mut self, cache: &Cache<K>) -> Result<usize, ApplyError> {
        let uid = self.owner.meta().uid.as_deref().unwrap_or_default();
        let mut pruned = 0;
        for object in cache.owned_by(uid) {
            let (key, metadata) = (Key::of(&*object), object.meta());
            let member = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF)) == Some(&self.id);
            let wanted = self.applied.contains(&(cache.kind().path(), key.clone()));
            if member && !wanted && metadata.deletion_timestamp.is_none() {
                let dry_run = self.dry;
                tracing::info!(kind = %cache.kind().name(), object = %key, dry_run, "is no longer wanted, and is deleted");
                pruned += usize::from(self.delete(cache.kind(), &key, &*object).await?);
            }
        }
        Ok(pruned)
    }

    /// False if it is not there any more as it was looked at.
    async fn delete<K: Object>(&mut self, kind: &Kind<K>, key: &Key, object: &K) -> Result<bool, ApplyError> {
        let api = kind.api(self.client.clone(), key.namespace());
        // Neither one of the same name that somebody made in the meantime, nor one that belongs to somebody else since. The change that we do not know
        // of is one of what the owner controls, or did: it is told of it.
        let metadata = object.meta();
        let preconditions =
            Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
        let parameters = DeleteParams { dry_run: self.dry, ..DeleteParams::background().preconditions(preconditions) };
        match api.delete(key.name(), &parameters).await {
            Ok(_) => {
                self.tell(kind, key, Applied::Deleted, Vec::new());
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(false),
            Err(error) => {
                let (kind, key) = (kind.name().into_owned(), key.clone());
                Err(ApplyError::Refused { kind, key, source: Box::new(error) })
            }
        }
    }

    /// Says what changes, and remembers it if it does not.
    fn tell<K: Object>(&mut self, kind: &Kind<K>, key: &Key, applied: Applied, changes: Vec<Change>) {
        let kind = kind.name();
        for line in changes::lines(&changes) {
            if self.dry {
                tracing::info!(%kind, object = %key, "would change {line}");
            } else {
                tracing::debug!(%kind, object = %key, "changed {line}");
            }
        }
        if self.dry {
            self.planned.push(Planned { kind: kind.into_owned(), key: key.clone(), applied, changes });
        }
    }

    /// Gives it its namespace, owner and label.
    fn put_in_place<K: Object>(&self, kind: &Kind<K>, wanted: &mut K) -> Result<Key, ApplyError> {
        let owner = self.owner.meta().namespace.clone();
        let metadata = wanted.meta_mut();
        if kind.is_namespaced() && metadata.namespace.is_none() {
            metadata.namespace.clone_from(&owner);
        }
        if let Some(owner) = owner.filter(|owner| metadata.namespace.as_ref() != Some(owner)) {
            return Err(ApplyError::Elsewhere { kind: kind.name().into_owned(), key: Key::of(wanted), owner });
        }
        let reference = OwnerReference { block_owner_deletion: Some(true), ..self.reference() };
        metadata.owner_references = Some(vec![reference]);
        metadata.labels.get_or_insert_default().insert(PART_OF.to_owned(), self.id.clone());
        // Whoever copied them from a live object wants a new one.
        (metadata.managed_fields, metadata.resource_version, metadata.uid) = (None, None, None);
        Ok(Key::of(wanted))
    }

    fn reference(&self) -> OwnerReference {
        self.owner.controller_owner_ref(self.kind.dynamic()).unwrap_or_default()
    }
}

impl<O: Object> std::fmt::Debug for Set<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set")
            .field("owner", &Key::of(self.owner))
            .field("applied", &self.applied.len())
            .finish_non_exhaustive()
    }
}

/// Whether a field differs that cannot be changed.
fn is_immutable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_invalid() && status.message.contains("immutable"))
}

fn owner_name(object: &impl Resource) -> Option<String> {
    let mut references = object.meta().owner_references.iter().flatten();
    references
        .find(|reference| reference.controller == Some(true))
        .map(|owner| format!("{} {}", owner.kind, owner.name))
}

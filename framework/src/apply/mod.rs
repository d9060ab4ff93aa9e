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
//! // Deletes Secrets that were applied before, and are no longer desired.
//! set.prune(secrets).await?;
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
//! owner. An object that has the label and the owner, and was not applied to this [`ApplySet`], is deleted, if it is still as the
//! cache has it. [`ApplySet::delete`] deletes one object of the owner, which need not be a member. The owner does not get the
//! marks of an `ApplySet`'s parent: they are how tools find members, which a controller has in its caches, and would cost a write to
//! each owner. `kubectl apply --applyset` refuses an owner without them.
//!
//! **Change log.** Each field that a write changed is a log line at level `debug`: `~ data.level: "3" → "4"`. With
//! [`ApplySet::dry_run`] nothing is written, and the changes are logged that would be. Values of Secrets, and of kinds that
//! [`ApplySet::hiding`] names, are not logged.

mod changes;
mod deletion;
mod differences;
mod error;
mod marks;
mod owned;
#[cfg(test)]
mod pruning;

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde_json::Value;

pub use self::changes::{Change, changes};
use self::changes::{Hidden, changes_of};
pub use self::deletion::Deletion;
pub use self::differences::{Difference, differences};
pub use self::error::{ApplyError, Error, OtherError, Result};
pub use self::marks::{APPLIED, PART_OF};
use self::marks::{fingerprint, id, sign, stamp};
pub use self::owned::Owned;
use crate::cache::{Cache, CachedObject};
use crate::{Key, Kind, Object, StaticKind};

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
    client: Client,
    manager: String,
    id: String,
    /// The path of the kind, and the key.
    applied: HashSet<(String, Key)>,
    stamps: bool,
    dry: bool,
    /// Kinds whose values are not logged, in addition to Secrets.
    hidden: Vec<String>,
    planned: Vec<Planned>,
}

impl<'a, O: Object> ApplySet<'a, O> {
    /// Creates an empty set. `manager` is the name of the field manager. It must never change, or fields of the former name stay.
    pub fn of(owner: &'a O, client: Client, manager: impl Into<String>) -> Self
    where
        O: StaticKind,
    {
        Self::of_kind(&Kind::known(), owner, client, manager)
    }

    /// As [`of`](Self::of), with an owner of any kind.
    pub fn of_kind(kind: &Kind<O>, owner: &'a O, client: Client, manager: impl Into<String>) -> Self {
        let id = id(kind, owner);
        let (kind, manager, applied, planned) = (kind.clone(), manager.into(), HashSet::new(), Vec::new());
        Self { kind, owner, client, manager, id, applied, stamps: false, dry: false, hidden: Vec::new(), planned }
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
        self.dry = true;
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
        &self.planned
    }

    /// Applies `wanted`, unless the object in `owned` matches it. Without a namespace, it gets the owner's.
    ///
    /// # Errors
    /// [`ApplyError`].
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
        let mut known = cache.known(&key);
        if known.is_none() && cache.is_selecting() {
            // The cache does not show the objects of others, nor one of ours that lost the label.
            let api = cache.kind().api(self.client.clone(), key.namespace());
            let refused = |error| ApplyError::Refused { kind: kind(), key: key.clone(), source: Box::new(error) };
            known = api.get_opt(key.name()).await.map_err(refused)?.map(CachedObject::read);
        }
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
        // Objects lack these fields if they come from a list and their kind is discovered at run time.
        for (field, _) in cache.kind().types() {
            wanted.as_object_mut().and_then(|wanted| wanted.remove(field));
        }
        if let Some(known) = &known {
            let differences = differences(&wanted, &known.object().value());
            if differences.is_empty() {
                // Nothing to compare until the object or the desired state changes.
                cache.settle(&key, known, asked);
                return Ok(Applied::Unchanged);
            }
            // Only the fields: values may be secrets.
            let hidden = Hidden::of(cache.kind(), &self.hidden);
            let mut fields: Vec<_> = differences.iter().map(|difference| hidden.path(&difference.path)).collect();
            fields.dedup();
            tracing::info!(kind = kind(), object = %key, ?fields, dry_run = self.dry, "object differs; applying it");
        }
        for (field, value) in cache.kind().types() {
            wanted[field] = value.into();
        }
        let api = cache.kind().api(self.client.clone(), key.namespace());
        // An object that is not in the cache may exist and have another owner, so do not overwrite it.
        let force = known.is_some();
        let parameters = PatchParams { dry_run: self.dry, force, ..PatchParams::apply(&self.manager) };
        match api.patch(key.name(), &parameters, &Patch::Apply(&wanted)).await {
            Ok(written) => {
                if self.dry || tracing::enabled!(tracing::Level::DEBUG) {
                    let hidden = Hidden::of(cache.kind(), &self.hidden);
                    let changes = changes_of(hidden, live().as_deref(), &written);
                    self.report(cache.kind(), &key, Applied::Written, changes);
                }
                if !self.dry {
                    cache.learn(written, lists);
                }
                Ok(Applied::Written)
            }
            Err(error) => match live().filter(|_| recreate && is_invalid(&error)) {
                Some(live) if self.could_be_new(cache.kind(), &key, wanted, &error).await => {
                    let dry_run = self.dry;
                    tracing::info!(kind = kind(), object = %key, dry_run, "deleting it: an immutable field differs");
                    self.remove(cache, &key, &*live).await?;
                    Ok(Applied::Deleted)
                }
                _ => Err(ApplyError::Refused { kind: kind(), key, source: Box::new(error) }),
            },
        }
    }

    /// Returns whether the apiserver would accept an object that it refused as an update if it were new: then what it refused is
    /// the change of a field that is immutable.
    ///
    /// Which fields are, and how the refusal is worded, differs between kinds: "field is immutable" for a Deployment, "updates
    /// to statefulset spec … are forbidden", "cannot change roleRef", or a rule of a CRD. But a creation is validated before its
    /// name is looked up, so the dry run of one ends in "already exists" if only the name is in the way.
    async fn could_be_new<K: Object>(&self, kind: &Kind<K>, key: &Key, wanted: Value, refused: &kube::Error) -> bool {
        let Ok(wanted) = serde_json::from_value::<K>(wanted) else { return false };
        let api = kind.api(self.client.clone(), key.namespace());
        let parameters = PostParams { dry_run: true, field_manager: Some(self.manager.clone()) };
        match api.create(&parameters, &wanted).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => true,
            Err(error) if is_invalid(&error) => false,
            // A quota or a webhook refuses the dry run, or a port is taken by the object itself. Most kinds say the word.
            _ => refused.to_string().contains("immutable"),
        }
    }

    /// Logs the changes; records them if this is a dry run.
    fn report<K: Object>(&mut self, kind: &Kind<K>, key: &Key, applied: Applied, changes: Vec<Change>) {
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

    /// Sets namespace, owner and label.
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
        // Copied from a live object, although a new one is desired.
        (metadata.managed_fields, metadata.resource_version, metadata.uid) = (None, None, None);
        Ok(Key::of(wanted))
    }

    fn reference(&self) -> OwnerReference {
        self.owner.controller_owner_ref(self.kind.dynamic()).unwrap_or_default()
    }
}

impl<O: Object> std::fmt::Debug for ApplySet<'_, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Set")
            .field("owner", &Key::of(self.owner))
            .field("applied", &self.applied.len())
            .finish_non_exhaustive()
    }
}

/// Returns whether the apiserver refused the content of an object.
fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_invalid())
}

fn owner_name(object: &impl Resource) -> Option<String> {
    let mut references = object.meta().owner_references.iter().flatten();
    references
        .find(|reference| reference.controller == Some(true))
        .map(|owner| format!("{} {}", owner.kind, owner.name))
}

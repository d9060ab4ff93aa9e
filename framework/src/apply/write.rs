//! One apply: the desired object is completed, compared with the known one, and sent if they differ.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;
use serde_json::Value;

use super::changes::{Hidden, changes_of};
use super::marks::{PART_OF, fingerprint, mark, sign, stamp};
use super::members::{Desired, MemberId, is_same, member_id};
use super::{Applied, ApplyError, ApplySet, Owned, TARGET, differences, owner_name};
use crate::cache::{Cache, CachedObject};
use crate::{Key, Kind, Object};

/// What is sent for an object.
struct Request<'a, K: Object> {
    cache: &'a Cache<K>,
    key: Key,
    /// The complete object.
    wanted: Value,
    known: Option<CachedObject<K>>,
    /// The number of lists from before the comparison.
    lists: u64,
}

impl<K: Object> Request<'_, K> {
    fn live(&self) -> Option<Arc<K>> {
        self.known.as_ref().map(|known| known.object().object())
    }
}

impl<O: Object> ApplySet<'_, O> {
    pub(super) async fn make<K>(
        &mut self,
        mut wanted: K,
        owned: &Owned<K>,
        recreate: bool,
    ) -> Result<Applied, ApplyError>
    where
        K: Object + Serialize,
    {
        let cache = owned.cache();
        self.remember(cache);
        let key = self.put_in_place(cache.kind(), &mut wanted)?;
        // An object whose apply fails is desired nevertheless: a prune must spare it.
        let id = self.desire(cache.kind(), &key)?;
        let lists = cache.lists();
        let encode = |source| ApplyError::Encode { kind: cache.kind().name().into_owned(), key: key.clone(), source };
        let asked = fingerprint(&mut wanted).map_err(encode)?;
        if cache.is_settled(&key, self.members.owner.as_deref(), asked) {
            return Ok(self.applied(id, Applied::Unchanged));
        }
        let known = self.known(cache, &key).await?;
        let live = known.as_ref().map(|known| known.object().object());
        let mut wanted = self.content(wanted, cache.kind(), live.as_deref()).map_err(encode)?;
        if let Some(known) = &known
            && !self.differs(cache.kind(), &key, &wanted, &known.object().value())
        {
            // Nothing to compare until the object or the desired state changes.
            cache.settle(&key, known, asked);
            return Ok(self.applied(id, Applied::Unchanged));
        }
        for (field, value) in cache.kind().types() {
            wanted[field] = value.into();
        }
        let applied = self.send(Request { cache, key, wanted, known, lists }, recreate).await?;
        Ok(self.applied(id, applied))
    }

    /// Marks an object as desired. It must not have been applied to this set before.
    fn desire<K: Object>(&mut self, kind: &Kind<K>, key: &Key) -> Result<MemberId, ApplyError> {
        let id = member_id(kind, key);
        if self.members.desired.get(&id) == Some(&Desired::Applied) {
            return Err(ApplyError::AppliedTwice { kind: kind.name().into_owned(), key: key.clone() });
        }
        self.members.desired.insert(id.clone(), Desired::Kept);
        Ok(id)
    }

    /// Remembers that an object was applied. One that was deleted may be applied once more, which creates it.
    fn applied(&mut self, id: MemberId, applied: Applied) -> Applied {
        if applied != Applied::Deleted {
            self.members.desired.insert(id, Desired::Applied);
        }
        applied
    }

    /// Remembers the kind, so that it can be pruned.
    fn remember<K: Object>(&mut self, cache: &Arc<Cache<K>>) {
        if !self.declared.iter().chain(&self.others).any(|known| is_same(known, cache)) {
            self.others.push(cache.clone());
        }
    }

    /// Sets name, namespace, owner and label.
    fn put_in_place<K: Object>(&self, kind: &Kind<K>, wanted: &mut K) -> Result<Key, ApplyError> {
        let (name, owner) = (self.owner.meta().name.clone(), self.owner.meta().namespace.clone());
        let metadata = wanted.meta_mut();
        if metadata.name.is_none() && metadata.generate_name.is_some() {
            return Err(ApplyError::GenerateName { kind: kind.name().into_owned() });
        }
        metadata.name = metadata.name.take().or(name);
        if kind.is_namespaced() && metadata.namespace.is_none() {
            metadata.namespace.clone_from(&owner);
        }
        if let Some(owner) = owner.filter(|owner| metadata.namespace.as_ref() != Some(owner)) {
            return Err(ApplyError::Elsewhere { kind: kind.name().into_owned(), key: Key::of(wanted), owner });
        }
        let reference = self.owner.controller_owner_ref(self.kind.dynamic()).unwrap_or_default();
        metadata.owner_references = Some(vec![OwnerReference { block_owner_deletion: Some(true), ..reference }]);
        metadata.labels.get_or_insert_default().insert(PART_OF.to_owned(), self.members.id.clone());
        // Copied from a live object, although a new one is desired.
        (metadata.managed_fields, metadata.resource_version, metadata.uid) = (None, None, None);
        Ok(Key::of(wanted))
    }

    /// Returns the object as far as it is known. It must be the owner's.
    async fn known<K: Object>(&self, cache: &Cache<K>, key: &Key) -> Result<Option<CachedObject<K>>, ApplyError> {
        let kind = || cache.kind().name().into_owned();
        let mut known = cache.known(key);
        if known.is_none() && cache.is_selecting() {
            // The cache does not show the objects of others, nor one of ours that lost the label.
            let api = cache.kind().api(self.members.client.clone(), key.namespace());
            let refused = |error| ApplyError::Refused { kind: kind(), key: key.clone(), source: Box::new(error) };
            known = api.get_opt(key.name()).await.map_err(refused)?.map(CachedObject::read);
        }
        match known {
            Some(other) if other.owner() != self.members.owner.as_deref() => {
                let owner = owner_name(&*other.object().object());
                Err(ApplyError::NotOurs { kind: kind(), owner, key: key.clone() })
            }
            known => Ok(known),
        }
    }

    /// Returns the desired object as JSON, with the digest and without its types: objects lack these if they come from a list and
    /// their kind is discovered at run time.
    fn content<K>(&self, mut wanted: K, kind: &Kind<K>, live: Option<&K>) -> serde_json::Result<Value>
    where
        K: Object + Serialize,
    {
        let mut content = sign(&mut wanted)?;
        mark(&mut wanted, &self.members.manager);
        if self.stamps {
            stamp(&mut wanted, live);
        }
        content["metadata"]["annotations"] = serde_json::to_value(&wanted.meta().annotations)?;
        for (field, _) in kind.types() {
            content.as_object_mut().and_then(|content| content.remove(field));
        }
        Ok(content)
    }

    /// Returns whether the live object differs from the desired one, and logs where.
    fn differs<K: Object>(&self, kind: &Kind<K>, key: &Key, wanted: &Value, live: &Value) -> bool {
        let differences = differences(wanted, live);
        if differences.is_empty() {
            return false;
        }
        // Only the fields: values may be secrets.
        let hidden = Hidden::of(kind, &self.hidden);
        let mut fields: Vec<_> = differences.iter().map(|difference| hidden.path(&difference.path)).collect();
        fields.dedup();
        let dry_run = self.members.dry;
        tracing::info!(target: TARGET, kind = &*kind.name(), object = %key, ?fields, dry_run, "object differs; applying it");
        true
    }

    async fn send<K: Object>(&mut self, request: Request<'_, K>, recreate: bool) -> Result<Applied, ApplyError> {
        let Request { cache, key, wanted, known, lists } = &request;
        let kind = cache.kind();
        let api = kind.api(self.members.client.clone(), key.namespace());
        // An object that is not in the cache may exist and have another owner, so do not overwrite it.
        let force = known.is_some();
        // The apiserver would parse the object a second time for warnings, which the client drops (KEP-2885).
        let parameters = PatchParams::apply(&self.members.manager).validation_ignore();
        let parameters = PatchParams { dry_run: self.members.dry, force, ..parameters };
        let error = match api.patch(key.name(), &parameters, &Patch::Apply(wanted)).await {
            Ok(written) => {
                if self.members.dry || tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
                    let changes = changes_of(Hidden::of(kind, &self.hidden), request.live().as_deref(), &written);
                    self.members.report(kind, key, Applied::Written, changes);
                }
                if !self.members.dry {
                    cache.learn(written, *lists);
                }
                return Ok(Applied::Written);
            }
            Err(error) => error,
        };
        match request.live().filter(|_| recreate && is_invalid(&error)) {
            Some(live) if self.could_be_new(kind, key, wanted, &error).await => {
                let dry_run = self.members.dry;
                tracing::info!(target: TARGET, kind = &*kind.name(), object = %key, dry_run, "deleting it: an immutable field differs");
                self.members.remove(cache, key, &*live).await?;
                Ok(Applied::Deleted)
            }
            _ => {
                let (kind, key) = (kind.name().into_owned(), key.clone());
                Err(ApplyError::Refused { kind, key, source: Box::new(error) })
            }
        }
    }

    /// Returns whether the apiserver would accept an object that it refused as an update if it were new: then what it refused is
    /// the change of a field that is immutable.
    ///
    /// Which fields are, and how the refusal is worded, differs between kinds: "field is immutable" for a Deployment, "updates
    /// to statefulset spec … are forbidden", "cannot change roleRef", or a rule of a CRD. But a creation is validated before its
    /// name is looked up, so the dry run of one ends in "already exists" if only the name is in the way.
    async fn could_be_new<K: Object>(&self, kind: &Kind<K>, key: &Key, wanted: &Value, refused: &kube::Error) -> bool {
        let Ok(wanted) = serde_json::from_value::<K>(wanted.clone()) else { return false };
        let api = kind.api(self.members.client.clone(), key.namespace());
        let parameters = PostParams { dry_run: true, field_manager: Some(self.members.manager.clone()) };
        match api.create(&parameters, &wanted).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => true,
            Err(error) if is_invalid(&error) => false,
            // A quota or a webhook refuses the dry run, or a port is taken by the object itself. Most kinds say the word.
            _ => refused.to_string().contains("immutable"),
        }
    }
}

/// Returns whether the apiserver refused the content of an object.
fn is_invalid(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_invalid())
}

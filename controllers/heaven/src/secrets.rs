//! Secrets with certificates, as [`certificates`](crate::certificates) computes them. Heavens may share them, so each adds
//! itself as one of the owners.
//!
//! They are deleted with the last owner. Writes require the version that was read: of two concurrent renewals, one fails
//! and is retried.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Client, Resource};
use serde_json::{Map, Value, json};
use trishanku_framework::Key;
use trishanku_framework::cache::{Cache, Caches, Change, OnDemand};

use crate::certificates::{Stored, Wanted};
use crate::{CERTIFICATE, Error, HeavenKind};

/// The field manager.
pub const MANAGER: &str = "trishanku-heaven";
const TYPE: &str = "kubernetes.io/tls";
/// The keys that this controller manages; others belong to users.
const KEYS: [&str; 6] = ["tls.crt", "tls.key", "ca.crt", "bridges.crt", "next.key", "kubeconfig"];

/// The Secrets that heavens use: those of this controller are cached, and others are read when a heaven names them. A cluster
/// may have many large ones.
#[derive(Clone)]
pub struct Secrets {
    /// The Secrets with the label [`CERTIFICATE`].
    pub ours: Arc<Cache<Secret>>,
    /// All Secrets; their content is read on demand.
    pub others: OnDemand<Secret>,
}

impl Secrets {
    /// Returns the caches of a controller.
    pub fn of(caches: &Caches) -> Self {
        Self { ours: caches.cache_selecting(CERTIFICATE), others: caches.cache_on_demand() }
    }

    /// Returns a Secret: from the cache, or else with a request.
    ///
    /// # Errors
    /// The error of the API server.
    pub async fn get(&self, client: &Client, key: &Key) -> kube::Result<Option<Arc<Secret>>> {
        match self.ours.get(key) {
            Some(secret) => Ok(Some(secret)),
            None => self.others.get(client, key).await,
        }
    }

    /// Returns whether there is a Secret of that name.
    pub fn exists(&self, key: &Key) -> bool {
        self.others.metadata().get(key).is_some()
    }
}

/// Returns the present Secrets with these names, as the input of [`issue`](crate::certificates::issue).
///
/// # Errors
/// The error of the API server.
pub async fn stored<'n>(
    client: &Client,
    secrets: &Secrets,
    heaven: &Key,
    names: impl IntoIterator<Item = &'n str>,
) -> kube::Result<BTreeMap<&'n str, Stored>> {
    let mut found = BTreeMap::new();
    for name in names {
        let key = Key::namespaced(heaven.namespace().unwrap_or_default(), name);
        let Some(secret) = secrets.get(client, &key).await? else { continue };
        let data = secret.data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        found.insert(name, Stored { data, is_ours: is_ours(&*secret) });
    }
    Ok(found)
}

fn is_ours(secret: &impl Resource) -> bool {
    secret.meta().labels.as_ref().is_some_and(|labels| labels.contains_key(CERTIFICATE))
}

/// Whether a change concerns a Secret of which only the metadata is cached.
pub fn is_of_others(change: &Change<'_, PartialObjectMeta<Secret>>) -> bool {
    change.before.into_iter().chain(change.after).any(|secret| !is_ours(secret))
}

/// Whether a change to a Secret concerns the heavens that use it. An additional owner does not: of a thousand new
/// heavens, each would otherwise reconcile a thousand times.
pub fn is_of_interest(change: &Change<'_, Secret>) -> bool {
    let (Some(before), Some(after)) = (change.before, change.after) else { return true };
    let owners = |secret: &Secret| secret.metadata.owner_references.as_ref().map_or(0, Vec::len);
    let is_same = before.data == after.data
        && before.metadata.uid == after.metadata.uid
        && before.metadata.labels == after.metadata.labels
        && before.metadata.deletion_timestamp == after.metadata.deletion_timestamp;
    !is_same || owners(after) < owners(before)
}

/// Creates or updates a Secret, and makes `heaven` one of its owners; returns whether anything was written.
///
/// # Errors
/// [`Error::Raced`] if another client has changed the Secret since it was read; the error of the API server.
pub async fn write<K: HeavenKind>(
    client: &Client,
    cache: &Cache<Secret>,
    heaven: &K,
    wanted: &Wanted,
) -> Result<bool, Error> {
    let namespace = heaven.meta().namespace.as_deref().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let called = format!("Secret {:?}", wanted.name);
    let present = cache.get(&Key::namespaced(namespace, &wanted.name));
    let written = match present {
        None => {
            tracing::info!(secret = wanted.name, role = wanted.role.name(), "creating a Secret");
            let secret = made(heaven, wanted);
            let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            api.create(&parameters, &secret).await.map(|_| true)
        }
        Some(present) => {
            let Some(patch) = patch(&present, heaven, wanted) else { return Ok(false) };
            tracing::info!(secret = wanted.name, role = wanted.role.name(), "updating a Secret");
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&wanted.name, &parameters, &Patch::Strategic(patch)).await.map(|_| true)
        }
    };
    match written {
        Err(kube::Error::Api(status))
            if status.is_conflict()
                || status.is_already_exists()
                || status.is_not_found() && cache.get(&Key::namespaced(namespace, &wanted.name)).is_some() =>
        {
            Err(Error::Raced(called))
        }
        written => Ok(written?),
    }
}

fn made(heaven: &impl HeavenKind, wanted: &Wanted) -> Secret {
    let data = wanted.data.iter().map(|(key, value)| (key.clone(), k8s_openapi::ByteString(value.clone()))).collect();
    Secret {
        metadata: ObjectMeta {
            name: Some(wanted.name.clone()),
            labels: Some([(CERTIFICATE.to_owned(), wanted.role.name().to_owned())].into()),
            owner_references: Some(vec![owner(heaven)]),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.to_owned()),
        data: Some(data),
        ..Secret::default()
    }
}

/// An owner reference that is not that of a controller, since there may be several.
fn owner(heaven: &impl HeavenKind) -> OwnerReference {
    let reference = heaven.owner_ref(&()).unwrap_or_default();
    OwnerReference { controller: None, block_owner_deletion: None, ..reference }
}

/// The patch for this version of a Secret, if anything differs.
fn patch(present: &Secret, heaven: &impl HeavenKind, wanted: &Wanted) -> Option<Value> {
    let nothing = BTreeMap::new();
    let there = present.data.as_ref().unwrap_or(&nothing);
    let mut data = Map::new();
    for key in KEYS {
        match (wanted.data.get(key), there.get(key)) {
            (Some(wanted), there) if there.is_none_or(|there| there.0 != *wanted) => {
                data.insert(key.to_owned(), json!(k8s_openapi::ByteString(wanted.clone())));
            }
            (None, Some(_)) => {
                data.insert(key.to_owned(), Value::Null);
            }
            _ => {}
        }
    }
    let mut owners = present.metadata.owner_references.iter().flatten();
    let is_owner = owners.any(|owner| Some(&owner.uid) == heaven.meta().uid.as_ref());
    if data.is_empty() && is_owner {
        return None;
    }
    let mut metadata = json!({"uid": present.metadata.uid});
    if !is_owner {
        // Added to the other owners, whichever they are by then.
        metadata["ownerReferences"] = json!([owner(heaven)]);
    }
    if data.is_empty() {
        return Some(json!({"metadata": metadata}));
    }
    metadata["resourceVersion"] = json!(present.metadata.resource_version);
    Some(json!({"metadata": metadata, "data": data}))
}

/// Removes the heaven from Secrets that it no longer uses, and deletes those without other owners. Costs a scan of the
/// namespace's Secrets of this controller.
///
/// # Errors
/// [`Error::Raced`] if another client has changed a Secret since it was read; the error of the API server.
pub async fn release<K: HeavenKind>(
    client: &Client,
    cache: &Cache<Secret>,
    heaven: &K,
    named: &[&str],
) -> Result<(), Error> {
    let (namespace, uid) = (heaven.meta().namespace.as_deref(), heaven.meta().uid.as_deref().unwrap_or_default());
    let is_left = |secret: &Secret| {
        let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
        let is_named = secret.metadata.name.as_deref().is_some_and(|name| named.contains(&name));
        !is_named && owners.iter().any(|owner| owner.uid == uid)
    };
    let keys = cache.keys().into_iter().filter(|key| key.namespace() == namespace);
    let secrets = keys.filter_map(|key| cache.get(&key));
    for secret in secrets.filter(|secret| is_left(secret) && secret.metadata.deletion_timestamp.is_none()) {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace.unwrap_or_default());
        let (uid_there, version) = (secret.metadata.uid.clone(), secret.metadata.resource_version.clone());
        let others: Vec<_> =
            secret.metadata.owner_references.iter().flatten().filter(|owner| owner.uid != uid).collect();
        tracing::info!(secret = name, others = others.len(), "releasing a Secret");
        let done = if others.is_empty() {
            let preconditions = Preconditions { uid: uid_there, resource_version: version };
            api.delete(&name, &DeleteParams::background().preconditions(preconditions)).await.map(|_| ())
        } else {
            let own = json!([{"$patch": "delete", "uid": uid}]);
            let patch = json!({"metadata": {"uid": uid_there, "ownerReferences": own}});
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&name, &parameters, &Patch::Strategic(patch)).await.map(|_| ())
        };
        match done {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                return Err(Error::Raced(format!("Secret {name:?}")));
            }
            done => done?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use trishanku_api::TrishankuHeaven;

    use super::*;

    fn heaven(name: &str) -> TrishankuHeaven {
        let mut heaven = TrishankuHeaven::new(name, trishanku_api::TrishankuHeavenSpec::default());
        heaven.metadata.uid = Some(format!("uid-{name}"));
        heaven
    }

    fn wanted(value: &str) -> Wanted {
        let data = [("tls.key".to_owned(), value.as_bytes().to_vec())].into();
        Wanted { role: crate::certificates::Role::Admin, name: "s".to_owned(), data, is_new: false }
    }

    #[test]
    fn who_only_joins_asks_for_no_version_and_who_changes_something_does() {
        let mut secret = made(&heaven("a"), &wanted("x"));
        secret.metadata.resource_version = Some("7".to_owned());
        assert_eq!(patch(&secret, &heaven("a"), &wanted("x")), None);
        let joins = patch(&secret, &heaven("b"), &wanted("x")).unwrap();
        assert_eq!((&joins["metadata"]["resourceVersion"], &joins["data"]), (&Value::Null, &Value::Null));
        assert_eq!(joins["metadata"]["ownerReferences"][0]["name"], "b");
        assert!(joins["metadata"]["ownerReferences"].as_array().unwrap().len() == 1, "the others stay as they are");
        let changes = patch(&secret, &heaven("a"), &wanted("y")).unwrap();
        assert_eq!(changes["metadata"]["resourceVersion"], "7");
        // The first reconcile corrects it: obsolete keys are removed, keys of users stay.
        for key in ["bridges.crt", "theirs"] {
            secret.data.as_mut().unwrap().insert(key.to_owned(), ByteString(b"z".to_vec()));
        }
        let changes = patch(&secret, &heaven("a"), &wanted("x")).unwrap();
        assert_eq!(changes["data"], json!({"bridges.crt": null}));
    }

    #[test]
    fn one_more_owner_is_nothing_to_the_others() {
        let one = made(&heaven("a"), &wanted("x"));
        let mut two = one.clone();
        two.metadata.owner_references.as_mut().unwrap().push(owner(&heaven("b")));
        let other = made(&heaven("a"), &wanted("y"));
        let is = |before, after| is_of_interest(&Change { before, after, initial: false });
        assert!(!is(Some(&one), Some(&two)));
        assert!(
            is(Some(&two), Some(&one)) && is(Some(&one), Some(&other)) && is(None, Some(&one)) && is(Some(&one), None)
        );
    }
}

//! Secrets with certificates: shared by heavens, so that each puts itself on as one owner among others.
//!
//! The last owner takes them with it. Whoever writes does so on top of what it has seen: of two that renew at once, one is told that it was not the first,
//! and looks again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Client, Resource as _};
use serde_json::{Map, Value, json};
use trishanku_api::TrishankuHeaven;
use trishanku_framework::Key;
use trishanku_framework::cache::Cache;

use crate::certificates::{Stored, Wanted};
use crate::{CERTIFICATE, Error};

/// In whose name fields are managed.
pub(crate) const MANAGER: &str = "trishanku-heaven";
const TYPE: &str = "kubernetes.io/tls";
/// What of a Secret is said here; other keys are somebody's.
const KEYS: [&str; 5] = ["tls.crt", "tls.key", "ca.crt", "bridges.crt", "kubeconfig"];

/// What there is of these names.
pub(crate) fn stored<'n>(
    cache: &Cache<Secret>,
    heaven: &Key,
    names: impl IntoIterator<Item = &'n str>,
) -> BTreeMap<&'n str, Stored> {
    let found = names.into_iter().filter_map(|name| {
        let secret = cache.get(&Key::namespaced(heaven.namespace()?, name))?;
        let data = secret.data.clone().unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        Some((name, Stored { data, is_ours: is_ours(&secret) }))
    });
    found.collect()
}

fn is_ours(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(CERTIFICATE))
}

/// Makes a Secret as it should be; says whether anything was written.
pub(crate) async fn write(
    client: &Client,
    cache: &Cache<Secret>,
    heaven: &TrishankuHeaven,
    wanted: &Wanted,
) -> Result<bool, Error> {
    let namespace = heaven.metadata.namespace.as_deref().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let called = format!("Secret {:?}", wanted.name);
    let present = cache.get(&Key::namespaced(namespace, &wanted.name));
    let written = match present {
        None => {
            tracing::info!(secret = wanted.name, role = wanted.role.name(), "is made");
            let secret = made(heaven, wanted);
            let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            api.create(&parameters, &secret).await.map(|_| true)
        }
        Some(present) => {
            let Some(patch) = patch(&present, heaven, wanted) else { return Ok(false) };
            tracing::info!(secret = wanted.name, role = wanted.role.name(), "is renewed or shared");
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&wanted.name, &parameters, &Patch::Merge(patch)).await.map(|_| true)
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

fn made(heaven: &TrishankuHeaven, wanted: &Wanted) -> Secret {
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

/// One of several: no controller.
fn owner(heaven: &TrishankuHeaven) -> OwnerReference {
    let reference = heaven.owner_ref(&()).unwrap_or_default();
    OwnerReference { controller: None, block_owner_deletion: None, ..reference }
}

/// What is different, on top of this version.
fn patch(present: &Secret, heaven: &TrishankuHeaven, wanted: &Wanted) -> Option<Value> {
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
    let owners = present.metadata.owner_references.clone().unwrap_or_default();
    let is_owner = owners.iter().any(|owner| Some(&owner.uid) == heaven.metadata.uid.as_ref());
    if data.is_empty() && is_owner {
        return None;
    }
    let mut metadata = json!({"resourceVersion": present.metadata.resource_version, "uid": present.metadata.uid});
    if !is_owner {
        metadata["ownerReferences"] = json!([owners, vec![owner(heaven)]].concat());
    }
    let mut patch = json!({"metadata": metadata});
    if !data.is_empty() {
        patch["data"] = Value::Object(data);
    }
    Some(patch)
}

/// Takes the heaven off Secrets that it does not name any more; those that nobody else has are deleted. Costs a look at all Secrets that are known.
pub(crate) async fn release(
    client: &Client,
    cache: &Cache<Secret>,
    heaven: &TrishankuHeaven,
    named: &[&str],
) -> Result<(), Error> {
    let (namespace, uid) = (heaven.metadata.namespace.as_deref(), heaven.metadata.uid.as_deref().unwrap_or_default());
    let is_left = |secret: &Secret| {
        let owners = secret.metadata.owner_references.as_deref().unwrap_or_default();
        let is_named = secret.metadata.name.as_deref().is_some_and(|name| named.contains(&name));
        secret.metadata.namespace.as_deref() == namespace
            && is_ours(secret)
            && !is_named
            && owners.iter().any(|owner| owner.uid == uid)
    };
    for secret in
        cache.all().into_iter().filter(|secret| is_left(secret) && secret.metadata.deletion_timestamp.is_none())
    {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace.unwrap_or_default());
        let (uid_there, version) = (secret.metadata.uid.clone(), secret.metadata.resource_version.clone());
        let others: Vec<_> =
            secret.metadata.owner_references.iter().flatten().filter(|owner| owner.uid != uid).collect();
        tracing::info!(secret = name, others = others.len(), "is not named any more");
        let done = if others.is_empty() {
            let preconditions = Preconditions { uid: uid_there, resource_version: version };
            api.delete(&name, &DeleteParams::background().preconditions(preconditions)).await.map(|_| ())
        } else {
            let patch = json!({"metadata": {"resourceVersion": version, "uid": uid_there, "ownerReferences": others}});
            let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&name, &parameters, &Patch::Merge(patch)).await.map(|_| ())
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

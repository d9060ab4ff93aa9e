//! The migration of stored objects to the storage version of their definition (KEP-2330,
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/>).

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::json;

use super::{Definitions, TRIES};

/// Objects in each list.
const PAGE: u32 = 500;

/// Why stored objects are not migrated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrationError {
    /// A request failed. Objects that were rewritten before stay so.
    #[error("cannot migrate the stored objects of {name}")]
    Refused {
        /// The definition.
        name: String,
        /// The error of the request.
        source: Box<kube::Error>,
    },
    /// The definition has no storage version, or has been changed again and again.
    #[error("cannot migrate the stored objects of {name}: its storage version has been changed meanwhile; try again")]
    Changed {
        /// The definition.
        name: String,
    },
}

impl Definitions {
    /// Rewrites all objects that may be stored in another version than the storage version, and removes the other versions from
    /// `status.storedVersions`. After that, a definition without these versions can be applied. Returns how many objects it
    /// has rewritten.
    ///
    /// Call it after [`apply`](Self::apply) with a new storage version, when all API servers have it and, if versions differ in
    /// more than their name, the [conversion](crate::webhook::Webhooks::converting) is served: for example as
    /// [`Manager::runnable`](crate::Manager::runnable), so that only the leader does it. It can be repeated and interrupted at
    /// any time. It costs a request for each object, and one for each definition without such objects.
    ///
    /// It needs permission to `get` the definitions and to `patch` their `status`, and to `list` and `patch` the objects.
    /// An empty merge patch makes the API server store an object again; nothing else about it changes, and admission webhooks
    /// are asked as in any update.
    ///
    /// # Errors
    /// [`MigrationError`] of the first definition that is not migrated; those before it are.
    pub async fn migrate(&self, client: &Client) -> Result<usize, MigrationError> {
        let mut rewritten = 0;
        for definition in &self.all {
            rewritten += migrate(client, definition.metadata.name.as_deref().unwrap_or_default()).await?;
        }
        Ok(rewritten)
    }
}

async fn migrate(client: &Client, name: &str) -> Result<usize, MigrationError> {
    let refused = |error| MigrationError::Refused { name: name.to_owned(), source: Box::new(error) };
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut rewritten = 0;
    for _ in 0..TRIES {
        let definition = definitions.get(name).await.map_err(refused)?;
        let Some(storage) = definition.spec.versions.iter().find(|version| version.storage) else { break };
        let stored =
            definition.status.as_ref().and_then(|status| status.stored_versions.as_deref()).unwrap_or_default();
        if stored.iter().all(|version| *version == storage.name) {
            return Ok(rewritten);
        }
        rewritten += rewrite(client, &resource(&definition, &storage.name)).await.map_err(refused)?;
        // If the definition has been changed since, objects may be stored in yet another version.
        let patch = json!({
            "metadata": {"resourceVersion": definition.metadata.resource_version},
            "status": {"storedVersions": [storage.name]},
        });
        match definitions.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(rewritten),
            Err(kube::Error::Api(status)) if status.is_conflict() => {}
            Err(error) => return Err(refused(error)),
        }
    }
    Err(MigrationError::Changed { name: name.to_owned() })
}

fn resource(definition: &CustomResourceDefinition, version: &str) -> ApiResource {
    let (group, names) = (&definition.spec.group, &definition.spec.names);
    ApiResource {
        group: group.clone(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: names.kind.clone(),
        plural: names.plural.clone(),
    }
}

/// Repeats a request that the API server is too busy for, as it is for a moment after a definition has been changed.
async fn patiently<T, F>(request: impl Fn() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        match request().await {
            Err(kube::Error::Api(status)) if status.code == 429 && tries < TRIES => {
                let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                tokio::time::sleep(Duration::from_secs(u64::from(seconds.max(1)))).await;
            }
            answer => return answer,
        }
    }
}

/// Makes the API server store all objects of a kind again, in its present storage version.
async fn rewrite(client: &Client, resource: &ApiResource) -> kube::Result<usize> {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let (mut parameters, mut rewritten) = (ListParams::default().limit(PAGE), 0);
    loop {
        let page = patiently(|| all.list_metadata(&parameters)).await?;
        for found in page.items {
            let metadata = found.metadata;
            let (name, namespace) = (metadata.name.unwrap_or_default(), metadata.namespace);
            let api: Api<DynamicObject> = match &namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
                None => all.clone(),
            };
            let same = json!({"metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version}});
            let patch = Patch::Merge(same);
            let parameters = PatchParams::default();
            match patiently(|| api.patch_metadata(&name, &parameters, &patch)).await {
                Ok(_) => rewritten += 1,
                // Another write has stored it again, or it is gone.
                Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(rewritten),
        }
    }
}

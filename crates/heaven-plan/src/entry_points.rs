//! Look-up of the entry points of a heaven or merge.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use trishanku_framework::Key;
use trishanku_framework::cache::{Cache, OnDemand};

use crate::plan::EntryPoints;

/// Returns the available entry points: from the cache of the controller's own objects, if it has one, or else from the
/// namespace. `None` if users supply the `ConfigMap`, and it does not exist.
///
/// # Errors
/// The error of the API server.
pub async fn find(
    own: Option<&Cache<ConfigMap>>,
    others: &OnDemand<ConfigMap>,
    client: &Client,
    key: &Key,
    is_supplied: bool,
) -> kube::Result<Option<EntryPoints>> {
    let found = match own.and_then(|own| own.get(key)) {
        Some(map) => Some(map),
        None => others.get(client, key).await?,
    };
    Ok(match found {
        Some(map) => Some(EntryPoints::of(map.data.iter().flatten().map(|(key, _)| key.as_str()))),
        None if is_supplied => None,
        // It was created a moment ago.
        None => Some(EntryPoints { git_pre: false, gitcd_config: true }),
    })
}

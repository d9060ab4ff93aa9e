//! Kinds that a kube-apiserver cannot list. A single unreadable object makes LIST requests for its kind fail, although all processes are ready.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Client, Config, ResourceExt as _};
use serde::Serialize;

/// Response timeout. The watch cache waits 3 seconds for the current revision before a request fails.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent requests.
const AT_A_TIME: usize = 16;
/// A label that no object has: the response is empty, although the API server evaluates all objects of the kind.
const NO_OBJECT: &str = "trishanku.io/none";
/// Page size after a failure, as in `kubectl get`.
const PAGE: u32 = 500;

/// A kind that a kube-apiserver cannot list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlistable {
    /// The heaven of the API server, if it has one.
    pub heaven: Option<String>,
    /// The resource with its group, such as `deployments.apps`.
    pub resource: String,
    /// The error of the API server.
    pub reason: String,
    /// The last readable object before the unreadable one, as `NAMESPACE/NAME`. `None` if the first object is unreadable, or if it is unknown.
    pub after: Option<String>,
}

/// Returns the kinds that a running API server cannot list. Sends one LIST request for each kind, which the watch cache serves.
///
/// # Errors
/// Discovery failed; the text says why.
pub(super) async fn unlistable(heaven: Option<&str>, kubeconfig: &Path) -> Result<Vec<Unlistable>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot discover the kinds of kube-apiserver: {error}");
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(&error))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| failed(&error))?;
    // A retry would hide the failure.
    (config.default_retry, config.read_timeout) = (false, Some(TIMEOUT));
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    let discovery = tokio::time::timeout(TIMEOUT, Discovery::new(client.clone()).run_aggregated()).await;
    let discovery = discovery.map_err(|_| failed(&"no response"))?.map_err(|error| failed(&error))?;
    let resources = discovery.groups().flat_map(ApiGroup::recommended_resources);
    let resources = resources.filter(|(_, capabilities)| capabilities.supports_operation(verbs::LIST));
    let found = futures::stream::iter(resources.map(|(resource, _)| ask(client.clone(), resource)));
    let mut found: Vec<_> = found.buffer_unordered(AT_A_TIME).filter_map(std::future::ready).collect().await;
    found.sort_by(|one, other| one.resource.cmp(&other.resource));
    for unlistable in &mut found {
        unlistable.heaven = heaven.map(str::to_owned);
    }
    Ok(found)
}

/// Lists a kind; returns `None` on success.
async fn ask(client: Client, resource: ApiResource) -> Option<Unlistable> {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let no_object = ListParams::default().labels(NO_OBJECT);
    // A timeout can also mean overload: list page by page to find out.
    if let Ok(Ok(_)) = tokio::time::timeout(TIMEOUT, api.list_metadata(&no_object)).await {
        return None;
    }
    let (reason, after) = first_failure(&api).await?;
    let (plural, group) = (resource.plural, resource.group);
    let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
    Some(Unlistable { heaven: None, resource, reason, after })
}

/// Returns why a kind cannot be listed, and the last object before the unreadable one.
async fn first_failure(api: &Api<DynamicObject>) -> Option<(String, Option<String>)> {
    let (mut size, mut token, mut after) = (PAGE, None::<String>, None);
    loop {
        let mut page = ListParams::default().limit(size);
        page.continue_token.clone_from(&token);
        let error = match tokio::time::timeout(TIMEOUT, api.list_metadata(&page)).await {
            Ok(Ok(listed)) => {
                let name = |object: &kube::core::PartialObjectMeta<DynamicObject>| {
                    object
                        .namespace()
                        .map_or_else(|| object.name_any(), |namespace| format!("{namespace}/{}", object.name_any()))
                };
                after = listed.items.last().map(name).or(after);
                // Without a token this was the last page: all objects are readable.
                token = Some(listed.metadata.continue_.filter(|token| !token.is_empty())?);
                continue;
            }
            Ok(Err(kube::Error::Api(status))) => status.message.clone(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        if size == 1 {
            return Some((error, after));
        }
        size = 1;
    }
}

//! Which kinds an API server cannot list. One object that it cannot read is enough for that, while all its processes are well.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Client, Config, ResourceExt as _};
use serde::Serialize;

/// How long an answer may take. A cache that could not read an object waits for 3 seconds before it gives up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// So many kinds are asked for at a time.
const AT_A_TIME: usize = 16;
/// No object has this label, so that nothing is transferred. The API server looks at every object of the kind all the same.
const NOBODYS: &str = "trishanku.io/none";
/// Page by page, where the cache has failed; the same as `kubectl get`.
const PAGE: u32 = 500;

/// A kind that an API server cannot list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlistable {
    /// The heaven of the API server, if it has one.
    pub heaven: Option<String>,
    /// The resource with its group, such as `deployments.apps`.
    pub resource: String,
    /// What it answers.
    pub reason: String,
    /// The last object that it can read, as `NAMESPACE/NAME`: the next one is the one that it cannot. `None` if that is the first one, or not known.
    pub after: Option<String>,
}

/// The kinds that cannot be listed, of an API server that runs. Asks for each kind, from the API server's cache unless that has failed.
///
/// # Errors
/// The API server does not answer; the text says why.
pub(super) async fn unlistable(heaven: Option<&str>, kubeconfig: &Path) -> Result<Vec<Unlistable>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("cannot ask kube-apiserver which kinds it has: {error}");
    let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(&error))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| failed(&error))?;
    // Whether it answers at once is the question.
    (config.default_retry, config.read_timeout) = (false, Some(TIMEOUT));
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    let discovery = tokio::time::timeout(TIMEOUT, Discovery::new(client.clone()).run_aggregated()).await;
    let discovery = discovery.map_err(|_| failed(&"no answer"))?.map_err(|error| failed(&error))?;
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

/// Lists a kind; `None` if that works.
async fn ask(client: Client, resource: ApiResource) -> Option<Unlistable> {
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    let nobodys = ListParams::default().labels(NOBODYS);
    // It may have been a moment's overload: the pages decide.
    if let Ok(Ok(_)) = tokio::time::timeout(TIMEOUT, api.list_metadata(&nobodys)).await {
        return None;
    }
    let (reason, after) = first_failure(&api).await?;
    let (plural, group) = (resource.plural, resource.group);
    let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
    Some(Unlistable { heaven: None, resource, reason, after })
}

/// Why a kind cannot be listed page by page, and the last object before the one at fault.
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
                // All of them can be read.
                token = Some(listed.metadata.continue_.filter(|token| !token.is_empty())?);
                continue;
            }
            Ok(Err(kube::Error::Api(status))) => status.message.clone(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {TIMEOUT:?}"),
        };
        if size == 1 {
            return Some((error, after));
        }
        size = 1;
    }
}

//! Requests to a kube-apiserver.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::{Certificate, Identity, Method, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::kubeconfig::Cluster;
use super::{Refusal, Verdict};

/// Response timeout; an admission webhook may take up to 30 seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(40);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Attempts if other requests change the object between GET and dry run.
const RACES: usize = 4;

/// A client for one kube-apiserver, created for each push.
pub(super) struct Client {
    http: reqwest::Client,
    server: String,
    token: Option<String>,
    /// Discovered resources by `apiVersion`.
    resources: Mutex<HashMap<String, Vec<Resource>>>,
}

/// `APIResource` of `k8s.io/apimachinery/pkg/apis/meta/v1`.
#[derive(Clone, Deserialize)]
struct Resource {
    name: String,
    kind: String,
    namespaced: bool,
}

#[derive(Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

impl Client {
    pub(super) fn new(cluster: &Cluster) -> Result<Self, String> {
        // Fails if the process has installed a provider already.
        let _chosen = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("gitcd/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            // Connect to the kubeconfig's address, ignoring proxies in the environment.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none());
        if let Some(authority) = &cluster.authority {
            let authority = Certificate::from_pem_bundle(authority);
            http = http.tls_certs_only(authority.map_err(|_| "its certificate authority is no certificate in PEM")?);
        }
        if let Some(identity) = &cluster.identity {
            let identity = Identity::from_pem(identity);
            http = http.identity(identity.map_err(|_| "its client certificate, or the key, is not in PEM")?);
        }
        let http = http.build().map_err(|error| gitcd_core::error::chain(&error))?;
        let (server, token) = (cluster.server.clone(), cluster.token.clone());
        Ok(Self { http, server, token, resources: Mutex::default() })
    }

    /// Sends an object as a dry run: as an update if an object of its name exists, otherwise as a creation.
    pub(super) async fn try_one(&self, object: &[u8]) -> Result<Verdict, String> {
        let Some(json) = answer::as_json(object) else { return Ok(Verdict::Skipped) };
        let text =
            |at: &[&str]| at.iter().fold(&json, |value, name| &value[*name]).as_str().unwrap_or_default().to_owned();
        let (api_version, kind, name) = (text(&["apiVersion"]), text(&["kind"]), text(&["metadata", "name"]));
        let Some(resource) = self.resource(&api_version, &kind).await? else { return Ok(Verdict::Skipped) };
        let namespace = text(&["metadata", "namespace"]);
        let mut path = version(&api_version);
        if resource.namespaced {
            path.extend(["namespaces", &namespace]);
        }
        path.push(&resource.name);
        let one = [&path[..], &[&name]].concat();
        for _ in 0..RACES {
            let live = self.ask(Method::GET, &one, None).await?;
            let response = match live.status() {
                StatusCode::NOT_FOUND => {
                    let mut new = json.clone();
                    answer::forget(
                        &mut new,
                        &["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"],
                    );
                    self.ask(Method::POST, &path, Some(&new)).await?
                }
                StatusCode::OK => {
                    let live: Value = body(live).await?;
                    if live["metadata"]["uid"] != json["metadata"]["uid"] {
                        // A replacement by another object, which is not one API request.
                        return Ok(Verdict::Skipped);
                    }
                    let mut new = json.clone();
                    answer::forget(&mut new, &["managedFields"]);
                    new["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
                    self.ask(Method::PUT, &one, Some(&new)).await?
                }
                _ => return refused(live).await,
            };
            match response.status() {
                StatusCode::OK => return Ok(answer::verdict(object, &body(response).await?, false)),
                StatusCode::CREATED => return Ok(answer::verdict(object, &body(response).await?, true)),
                // Changed, created or deleted by another request in the meantime.
                StatusCode::CONFLICT => {}
                // Its namespace does not exist: the rules for files check whether the same push creates it.
                StatusCode::NOT_FOUND => return Ok(Verdict::Skipped),
                _ => return refused(response).await,
            }
        }
        Err(format!("{kind} {name} kept changing during the dry run"))
    }

    /// Returns the resource of a kind; `None` if the server does not serve it.
    async fn resource(&self, api_version: &str, kind: &str) -> Result<Option<Resource>, String> {
        let find = |resources: &[Resource]| {
            resources.iter().find(|resource| resource.kind == kind && !resource.name.contains('/')).cloned()
        };
        if let Some(known) = self.resources.lock().get(api_version) {
            return Ok(find(known));
        }
        let response = self.ask(Method::GET, &version(api_version), None).await?;
        let found = match response.status() {
            StatusCode::OK => body::<Resources>(response).await?.resources,
            StatusCode::NOT_FOUND => Vec::new(),
            status => return Err(format!("discovery of {api_version} failed with {status}")),
        };
        let resource = find(&found);
        self.resources.lock().insert(api_version.to_owned(), found);
        Ok(resource)
    }

    /// Sends a request; one with an object is a dry run that rejects unknown fields.
    async fn ask(&self, method: Method, path: &[&str], object: Option<&Value>) -> Result<Response, String> {
        let mut request = self.http.request(method, at(&self.server, path, object.is_some())?);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(object) = object {
            request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(object.to_string());
        }
        let response = request.send().await.map_err(|error| gitcd_core::error::chain(&error.without_url()))?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err("it rejects the credentials of the kubeconfig".to_owned()),
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(format!("it responded with {status}"))
            }
            _ => Ok(response),
        }
    }
}

/// Returns the path segments of an API version.
fn version(api_version: &str) -> Vec<&str> {
    let prefix = if api_version.contains('/') { "apis" } else { "api" };
    [prefix].into_iter().chain(api_version.split('/')).collect()
}

/// Returns the URL of a request. Names are percent-encoded: they may contain `?` or `#`.
fn at(server: &str, path: &[&str], is_dry_run: bool) -> Result<Url, String> {
    let mut url: Url = server.parse().map_err(|_| "the server in the kubeconfig is not an HTTP URL".to_owned())?;
    url.path_segments_mut()
        .map_err(|()| "the server in the kubeconfig is not an HTTP URL")?
        .pop_if_empty()
        .extend(path);
    if is_dry_run {
        url.set_query(Some("dryRun=All&fieldManager=gitcd&fieldValidation=Strict"));
    }
    Ok(url)
}

async fn body<T: serde::de::DeserializeOwned>(response: Response) -> Result<T, String> {
    let bytes = response.bytes().await.map_err(|error| gitcd_core::error::chain(&error.without_url()))?;
    serde_json::from_slice(&bytes).map_err(|_| "its response is not that of a kube-apiserver".to_owned())
}

async fn refused(response: Response) -> Result<Verdict, String> {
    let code = response.status().to_string();
    let status: Value = body(response).await.unwrap_or_else(|_| json!({}));
    let code = status["reason"].as_str().filter(|reason| !reason.is_empty()).map_or(code, str::to_owned);
    Ok(Verdict::Refused(Refusal { code, findings: answer::findings(&status) }))
}

#[cfg(test)]
mod tests {
    use super::{at, version};

    #[test]
    fn names_are_one_segment_each() {
        let path = [&version("rbac.authorization.k8s.io/v1")[..], &["clusterroles", "system:a b?#c"]].concat();
        let url = at("https://h:1/prefix", &path, true).unwrap();
        assert_eq!(url.path(), "/prefix/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a%20b%3F%23c");
        assert_eq!(url.query(), Some("dryRun=All&fieldManager=gitcd&fieldValidation=Strict"));
        assert_eq!(at("https://h:1", &version("v1"), false).unwrap().as_str(), "https://h:1/api/v1");
        assert!(at("nowhere", &[], false).is_err());
    }
}

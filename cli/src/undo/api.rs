//! Requests to kube-apiserver.

mod contents;

use std::collections::HashMap;

use gitcd::merge::secrecy::{Exposure, SecretKinds};
use http::{Method, Request};
use kube::Client;
use kube::core::Status;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::Mutex;
use trishanku_service::error::chain;
use trishanku_undo::ObjectRef;
use trishanku_undo::document::text;

use super::rejection;

/// The field manager of all writes.
pub(super) const MANAGER: &str = "trishanku-undo";
/// Page size, as in `kubectl get`.
const PAGE: usize = 500;
/// What a name in a path or a parameter may contain as it is (RFC 3986, unreserved); names of roles may contain almost everything.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// kube-apiserver rejected it.
    #[error("{}", rejection::shown(.status, *.is_hidden))]
    Rejected {
        status: Box<Status>,
        /// Whether the message may quote values that are not shown.
        is_hidden: bool,
    },
    /// kube-apiserver does not serve the kind.
    #[error("kube-apiserver does not serve {kind} of {api_version}")]
    NotServed { api_version: String, kind: String },
    /// The server of an API, such as that of metrics-server, does not respond to kube-apiserver.
    #[error(
        "kube-apiserver cannot reach the API {api_version} ({message}); repair it, or delete its APIService, and run this \
         again (`kubectl get apiservices` shows why)"
    )]
    Unavailable { api_version: String, message: String },
    /// There was no usable response.
    #[error("no response from kube-apiserver: {0}")]
    Failed(String),
}

impl ApiError {
    /// Returns the HTTP status code, or 0.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::Rejected { status, .. } => status.code,
            _ => 0,
        }
    }

    pub(super) fn is_reason(&self, reason: &str) -> bool {
        matches!(self, Self::Rejected { status, .. } if status.reason == reason)
    }

    /// Returns the message of kube-apiserver, which must not be shown; empty if there is none.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Rejected { status, .. } => &status.message,
            _ => "",
        }
    }

    /// Names the API of a request that kube-apiserver could not pass on. Those of kube-apiserver itself are always reached.
    fn of_api(self, api_version: &str) -> Self {
        match self {
            Self::Rejected { status, .. } if matches!(status.code, 502..=504) && api_version.contains('/') => {
                Self::Unavailable { api_version: api_version.to_owned(), message: status.message.trim().to_owned() }
            }
            other => other,
        }
    }

    /// Hides the message if it may quote values.
    fn hidden(self, hide: bool) -> Self {
        match self {
            Self::Rejected { status, .. } => Self::Rejected { status, is_hidden: hide },
            other => other,
        }
    }
}

/// A kind that is served.
#[derive(Clone, Debug)]
struct Served {
    kind: String,
    plural: String,
    is_namespaced: bool,
    /// Whether the namespace controller lists and deletes its objects.
    is_deletable: bool,
}

/// A client of kube-apiserver that finds kinds by itself.
pub(super) struct Api {
    client: Client,
    served: Mutex<HashMap<String, Vec<Served>>>,
    /// Kinds whose values no error quotes.
    secrets: SecretKinds,
}

impl Api {
    /// Creates it with the client of the user.
    pub(super) fn new(client: Client, secrets: SecretKinds) -> Self {
        Self { client, served: Mutex::default(), secrets }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        self.send_for(method, path, body, "application/json").await
    }

    async fn send_for(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        accept: &str,
    ) -> Result<Value, ApiError> {
        let request = Request::builder().method(method).uri(path).header("Accept", accept);
        let request = request.header("Content-Type", "application/json");
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = request.body(body).map_err(|error| ApiError::Failed(error.to_string()))?;
        self.client.request(request).await.map_err(|error| match error {
            kube::Error::Api(status) => ApiError::Rejected { status, is_hidden: false },
            error => ApiError::Failed(chain(&error)),
        })
    }

    /// Sends an object, or a request about it. No error quotes the values of a hidden kind.
    async fn write(&self, method: Method, path: &str, object: &Value, body: &Value) -> Result<Value, ApiError> {
        let is_hidden = || self.secrets.of_value(object.to_string().as_bytes()) != Exposure::Open;
        self.send(method, path, Some(body)).await.map_err(|error| error.hidden(is_hidden()))
    }

    /// Returns the current revision of the store; `None` if the user may not list namespaces.
    pub(super) async fn revision(&self) -> Result<Option<i64>, ApiError> {
        let list = match self.send(Method::GET, "/api/v1/namespaces?limit=1", None).await {
            Err(error) if error.code() == 403 => return Ok(None),
            list => list?,
        };
        let revision = text(&list, "/metadata/resourceVersion").parse();
        revision.map(Some).map_err(|_| ApiError::Failed("a list without a resource version".to_owned()))
    }

    async fn served(&self, api_version: &str, kind: &str) -> Result<Served, ApiError> {
        let mut known = self.served.lock().await;
        if !known.contains_key(api_version) {
            let list = match self.send(Method::GET, &root(api_version), None).await {
                Err(error) if error.code() == 404 => Value::Null,
                list => list.map_err(|error| error.of_api(api_version))?,
            };
            known.insert(api_version.to_owned(), resources(&list));
        }
        let found = known[api_version].iter().find(|served| served.kind == kind).cloned();
        if found.is_none() {
            // It may be served soon.
            known.remove(api_version);
        }
        found.ok_or_else(|| ApiError::NotServed { api_version: api_version.to_owned(), kind: kind.to_owned() })
    }

    /// Returns whether a kind is served.
    pub(super) async fn serves(&self, api_version: &str, kind: &str) -> Result<bool, ApiError> {
        match self.served(api_version, kind).await {
            Ok(_) => Ok(true),
            Err(ApiError::NotServed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn collection(&self, object: &ObjectRef) -> Result<String, ApiError> {
        let served = self.served(&object.api_version, &object.kind).await?;
        let root = root(&object.api_version);
        Ok(match object.namespace.as_deref().filter(|_| served.is_namespaced) {
            Some(namespace) => format!("{root}/namespaces/{}/{}", escaped(namespace), served.plural),
            None => format!("{root}/{}", served.plural),
        })
    }

    async fn path(&self, object: &ObjectRef) -> Result<String, ApiError> {
        Ok(format!("{}/{}", self.collection(object).await?, escaped(&object.name)))
    }

    /// Returns an object; `None` if it does not exist, or its kind is not served.
    pub(super) async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, ApiError> {
        let path = match self.path(object).await {
            Err(ApiError::NotServed { .. }) => return Ok(None),
            path => path?,
        };
        match self.send(Method::GET, &path, None).await {
            Err(error) if error.code() == 404 => Ok(None),
            found => found.map(Some).map_err(|error| error.of_api(&object.api_version)),
        }
    }

    /// Returns whether kube-apiserver can list a kind.
    pub(super) async fn is_listed(&self, like: &ObjectRef) -> Result<bool, ApiError> {
        let path = format!("{}?limit=1", self.collection(like).await?);
        match self.send(Method::GET, &path, None).await {
            Err(error) if matches!(error.code(), 404 | 503) => Ok(false),
            listed => listed.map(|_| true),
        }
    }

    /// Returns all objects of the kind and namespace of an object, by name.
    pub(super) async fn list(&self, like: &ObjectRef) -> Result<HashMap<String, Value>, ApiError> {
        let path = match self.collection(like).await {
            Err(ApiError::NotServed { .. }) => return Ok(HashMap::new()),
            path => path?,
        };
        let items = self.pages(&path, "", like, "application/json").await?;
        Ok(items.into_iter().map(|item| (text(&item, "/metadata/name").to_owned(), item)).collect())
    }

    /// Returns all objects of a collection, or those that `selection`, parameters that begin with `&`, selects.
    async fn pages(&self, path: &str, selection: &str, like: &ObjectRef, accept: &str) -> Result<Vec<Value>, ApiError> {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{path}?limit={PAGE}&continue={}{selection}", escaped(&next));
            let list = self.send_for(Method::GET, &path, None, accept).await;
            let mut list = list.map_err(|error| error.of_api(&like.api_version))?;
            let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
            found.extend(items.into_iter().map(|mut item| {
                item["apiVersion"] = like.api_version.as_str().into();
                item["kind"] = like.kind.as_str().into();
                item
            }));
            text(&list, "/metadata/continue").clone_into(&mut next);
            if next.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Creates an object, and returns it.
    pub(super) async fn create(&self, object: &ObjectRef, value: &Value, dry_run: bool) -> Result<Value, ApiError> {
        let path = format!("{}?{}", self.collection(object).await?, parameters(dry_run));
        self.write(Method::POST, &path, value, value).await
    }

    /// Replaces an object if it has the resource version in `value`.
    pub(super) async fn replace(&self, object: &ObjectRef, value: &Value, dry_run: bool) -> Result<Value, ApiError> {
        let path = format!("{}?{}", self.path(object).await?, parameters(dry_run));
        self.write(Method::PUT, &path, value, value).await
    }

    /// Deletes an object if it has the uid and the resource version of `current`.
    pub(super) async fn delete(&self, object: &ObjectRef, current: &Value, dry_run: bool) -> Result<Value, ApiError> {
        // With a body, kube-apiserver reads no option from the query (`DeleteResource` in `endpoints/handlers/delete.go`), but audit
        // events of level `Metadata` have only the query.
        let path = format!("{}?{}", self.path(object).await?, parameters(dry_run));
        let all: &[&str] = if dry_run { &["All"] } else { &[] };
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "dryRun": all,
            "preconditions": {
                "uid": text(current, "/metadata/uid"), "resourceVersion": text(current, "/metadata/resourceVersion"),
            },
        });
        self.write(Method::DELETE, &path, current, &options).await
    }
}

fn escaped(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

fn root(api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", escaped(group), escaped(version)),
        None => format!("/api/{}", escaped(api_version)),
    }
}

fn parameters(dry_run: bool) -> String {
    format!("fieldManager={MANAGER}{}", if dry_run { "&dryRun=All" } else { "" })
}

fn resources(list: &Value) -> Vec<Served> {
    let resources = list["resources"].as_array().into_iter().flatten();
    let resources = resources.filter(|resource| !text(resource, "/name").contains('/'));
    let served = |resource: &Value| Served {
        kind: text(resource, "/kind").to_owned(),
        plural: text(resource, "/name").to_owned(),
        is_namespaced: resource["namespaced"] == true,
        is_deletable: ["list", "delete"]
            .iter()
            .all(|verb| resource["verbs"].as_array().is_some_and(|verbs| verbs.contains(&Value::from(*verb)))),
    };
    resources.map(served).collect()
}

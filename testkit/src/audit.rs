//! Who requested what: kube-apiserver's audit log.

use std::path::Path;

use serde::Deserialize;

/// A request, as kube-apiserver recorded it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// `ResponseComplete`, or `ResponseStarted` for a request that continues, such as a watch.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// Path and query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The client's `User-Agent`.
    #[serde(default)]
    pub user_agent: String,
    /// When the request arrived.
    pub request_received_timestamp: String,
    /// When it was answered.
    pub stage_timestamp: String,
    user: User,
    #[serde(default)]
    impersonated_user: Option<User>,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Option<ResponseStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Clone, Debug, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Entry {
    /// Returns the user, which may be impersonated.
    pub fn user(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    /// Returns the status code; 0 without a response.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    /// Returns the resource with its subresource: `pods`, `pods/status`. Empty if the request was not for objects.
    pub fn resource(&self) -> String {
        match &self.object_ref {
            Some(object) if object.subresource.is_empty() => object.resource.clone(),
            Some(object) => format!("{}/{}", object.resource, object.subresource),
            None => String::new(),
        }
    }

    /// Returns the object's namespace; empty if it has none.
    pub fn namespace(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.namespace)
    }

    /// Returns the object's name; empty if it has none, or gets it from the server.
    pub fn name(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.name)
    }

    /// Returns whether the request is a write.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Returns whether a write succeeded, even if it changed nothing.
    pub fn has_written(&self) -> bool {
        self.is_write() && (200..300).contains(&self.code())
    }
}

pub(crate) fn read(log: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(log).unwrap_or_else(|error| panic!("cannot read {}: {error}", log.display()));
    // The last line may be incomplete.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let entry = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("not an audit entry: {error}: {line}"));
    whole.lines().map(entry).collect()
}

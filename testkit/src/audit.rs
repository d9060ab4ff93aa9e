//! Who asked for what: kube-apiserver's audit log.

use std::path::Path;

use serde::Deserialize;

/// One request, as kube-apiserver saw it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// `ResponseComplete`, or `ResponseStarted` for one that goes on, such as a watch.
    pub stage: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// The path with its query.
    #[serde(rename = "requestURI")]
    pub uri: String,
    /// The client's name of itself.
    #[serde(default)]
    pub user_agent: String,
    /// When it came.
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
    /// As whom.
    pub fn user(&self) -> &str {
        &self.impersonated_user.as_ref().unwrap_or(&self.user).username
    }

    /// The answer's code; 0 if there was none.
    pub fn code(&self) -> u16 {
        self.response_status.as_ref().map_or(0, |status| status.code)
    }

    /// The kind of object in the plural, with the subresource: `pods`, `pods/status`. Empty if it was not about objects.
    pub fn resource(&self) -> String {
        match &self.object_ref {
            Some(object) if object.subresource.is_empty() => object.resource.clone(),
            Some(object) => format!("{}/{}", object.resource, object.subresource),
            None => String::new(),
        }
    }

    /// The object's namespace; empty if it has none.
    pub fn namespace(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.namespace)
    }

    /// The object's name; empty if it has none, or gets it from the server.
    pub fn name(&self) -> &str {
        self.object_ref.as_ref().map_or("", |object| &object.name)
    }

    /// Whether it was to change something.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it did change something, or would have if it was not changed already.
    pub fn has_written(&self) -> bool {
        self.is_write() && (200..300).contains(&self.code())
    }
}

pub(crate) fn read(log: &Path) -> Vec<Entry> {
    let text = std::fs::read_to_string(log).unwrap_or_else(|error| panic!("cannot read {}: {error}", log.display()));
    // The last line may be half written.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let entry = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("no audit entry: {error}: {line}"));
    whole.lines().map(entry).collect()
}

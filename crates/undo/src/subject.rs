//! The input of a plan.

use std::fmt;

use gitcd_merge::protobuf;
use gitcd_merge::value::{Syntax, Value as Stored};
use serde::Serialize;
use serde_json::Value;

use crate::definition::served;
use crate::document::text;

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Revert the changes field by field. Fields that were edited later stay.
    Undo,
    /// Make the objects as they were before the oldest change, whole.
    Restore {
        /// Whether objects that were created since are deleted.
        prune: bool,
    },
}

/// A change of one object: its stored value before and after. `None` if it did not exist.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// The object before the change.
    pub before: Option<Value>,
    /// The object after the change.
    pub after: Option<Value>,
}

/// Why a stored value is not an object that can be written through the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// kube-apiserver stored it as protobuf.
    Protobuf,
    /// kube-apiserver encrypted it.
    Encrypted,
    /// It is neither JSON nor YAML.
    NoObject,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Protobuf => {
                "a version of it is stored as protobuf, which cannot be read; kube-apiserver needs --storage-media-type=application/json, and versions before that cannot be undone"
            }
            Self::Encrypted => "it is encrypted in the store; restore it from another copy",
            Self::NoObject => "its stored value is not a Kubernetes object",
        })
    }
}

impl Change {
    /// Parses the stored values of a change.
    ///
    /// # Errors
    /// [`Unreadable`] if a value is not a Kubernetes object in JSON or YAML.
    pub fn read(before: Option<&[u8]>, after: Option<&[u8]>) -> Result<Self, Unreadable> {
        Ok(Self { before: before.map(read).transpose()?, after: after.map(read).transpose()? })
    }

    /// Returns the object before the change, or after it if it did not exist before.
    pub fn object(&self) -> Option<&Value> {
        self.before.as_ref().or(self.after.as_ref())
    }
}

fn read(value: &[u8]) -> Result<Value, Unreadable> {
    if value.starts_with(protobuf::ENCRYPTED) {
        return Err(Unreadable::Encrypted);
    }
    if value.starts_with(protobuf::PREFIX) {
        return Err(Unreadable::Protobuf);
    }
    let (stored, _) = Stored::parse(value).ok_or(Unreadable::NoObject)?;
    let object: Value = serde_json::from_slice(&stored.write(Syntax::Json)).map_err(|_| Unreadable::NoObject)?;
    let is_object = object["kind"].is_string() && object["metadata"]["name"].is_string();
    if is_object { Ok(served(object)) } else { Err(Unreadable::NoObject) }
}

/// The identity of an object. Displayed as `Deployment shop/web`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Its key without the prefix of all keys.
    pub key: String,
    /// Such as `apps/v1`; empty if the stored value cannot be read.
    pub api_version: String,
    /// Such as `Deployment`; empty if the stored value cannot be read.
    pub kind: String,
    /// Its namespace, if the kind is namespaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// Reads the identity of an object that is stored under a key.
    pub fn of(key: &str, object: &Value) -> Self {
        Self {
            key: key.to_owned(),
            api_version: text(object, "/apiVersion").to_owned(),
            kind: text(object, "/kind").to_owned(),
            namespace: Some(text(object, "/metadata/namespace").to_owned()).filter(|name| !name.is_empty()),
            name: text(object, "/metadata/name").to_owned(),
        }
    }

    /// Returns the API group; empty for the core group.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns whether the object is of a kind, given its group and kind.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.kind == kind && self.group() == group
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.kind, &self.namespace) {
            ("", _) => f.write_str(&self.key),
            (kind, Some(namespace)) => write!(f, "{kind} {namespace}/{}", self.name),
            (kind, None) => write!(f, "{kind} {}", self.name),
        }
    }
}

/// An object to plan for.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Its key without the prefix of all keys.
    pub key: String,
    /// The object as the API returns it now; `None` if it does not exist.
    pub current: Option<Value>,
    /// The changes to revert, newest first.
    pub changes: Vec<Change>,
    /// For a Namespace or a `CustomResourceDefinition`: keys of the objects that are deleted with it.
    pub contents: Vec<String>,
    /// For a Namespace or a `CustomResourceDefinition`: why it is not known what is deleted with it, with a remedy.
    pub unlisted: Option<String>,
    /// Why nothing can be planned for it, such as a kind that is not served.
    pub problem: Option<String>,
}

impl Subject {
    /// Creates a subject.
    pub fn new(key: &str, current: Option<Value>, changes: Vec<Change>) -> Self {
        Self { key: key.to_owned(), current, changes, ..Self::default() }
    }

    /// Returns an object that shows the identity: the target if it exists.
    pub fn object(&self) -> Option<&Value> {
        let old = self.changes.iter().rev().find_map(|change| change.before.as_ref());
        old.or(self.current.as_ref()).or_else(|| self.changes.iter().find_map(|change| change.after.as_ref()))
    }

    /// Returns the object as it is, and as it was before and after each change.
    pub fn versions(&self) -> impl Iterator<Item = &Value> {
        let changes = self.changes.iter().flat_map(|change| change.before.iter().chain(&change.after));
        self.current.iter().chain(changes)
    }

    /// Returns the identity.
    pub fn identity(&self) -> ObjectRef {
        let unknown = || ObjectRef { key: self.key.clone(), ..ObjectRef::default() };
        self.object().map_or_else(unknown, |object| ObjectRef::of(&self.key, object))
    }
}

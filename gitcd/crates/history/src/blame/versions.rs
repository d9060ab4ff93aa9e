//! The versions of a key that a walk reads, and the comparison of two of them.

use std::collections::HashMap;
use std::rc::Rc;

use git2::Oid;
use gitcd_merge::schema::{Node, Schemas};
use gitcd_merge::value::{Syntax, Value};
use gitcd_merge::{identity, normalized};
use gitcd_repo::changes;

use super::carry::{Fields, carried};
use crate::{History, HistoryError};

/// A version of a key.
#[derive(Debug)]
pub(super) enum Version {
    /// An object, whose fields have writers of their own.
    Object(Value),
    /// Any other value, which is one field.
    Opaque,
}

impl Version {
    pub(super) fn object(&self) -> Option<&Value> {
        match self {
            Self::Object(object) => Some(object),
            Self::Opaque => None,
        }
    }

    /// Returns whether both are versions of the same object. A version without a `uid` is not another one.
    pub(super) fn is_same_object(&self, other: &Self) -> bool {
        let (Self::Object(one), Self::Object(other)) = (self, other) else { return false };
        let uids = [identity(one), identity(other)];
        uids[0] == uids[1] || uids.contains(&None)
    }
}

/// Limit on the bytes of the versions that are kept parsed. A parsed object takes many times its size in memory.
const KEPT_BYTES: usize = 2 << 20;

/// Versions by blob.
pub(super) struct Versions<'h> {
    history: &'h History,
    schemas: Schemas,
    read: HashMap<Oid, Rc<Version>>,
    /// The bytes of the kept versions.
    kept: usize,
}

impl<'h> Versions<'h> {
    /// Creates it for a key, with the schema of its kind in a data tree.
    pub(super) fn new(history: &'h History, relative: Option<&[u8]>, tree: Option<Oid>) -> Result<Self, HistoryError> {
        let definition = match (relative, tree) {
            (Some(relative), Some(tree)) => definition(history, relative, tree)?,
            _ => None,
        };
        // A malformed definition is not used by merges either.
        let (schemas, _) = Schemas::builtin().with_crds(&definition);
        Ok(Self { history, schemas, read: HashMap::new(), kept: 0 })
    }

    /// Returns the version in a blob.
    pub(super) fn get(&mut self, blob: Oid) -> Result<Rc<Version>, HistoryError> {
        if let Some(version) = self.read.get(&blob) {
            return Ok(Rc::clone(version));
        }
        let bytes = self.history.value(blob, None)?;
        let version = Rc::new(normalized(&bytes).map_or(Version::Opaque, |(object, _)| Version::Object(object)));
        if self.kept + bytes.len() > KEPT_BYTES {
            self.read.clear();
            self.kept = 0;
        }
        self.kept += bytes.len();
        self.read.insert(blob, Rc::clone(&version));
        Ok(version)
    }

    /// Returns the schema of an object; `None` if its kind is unknown.
    pub(super) fn node(&self, object: &Value) -> Option<Node<'_>> {
        let text = |name: &str| object.at(&[name]).and_then(Value::as_text).unwrap_or_default();
        self.schemas.of(&text("apiVersion"), &text("kind"))
    }

    /// Returns the fields that an earlier version has with the same value. An object with another `uid` has none of them.
    pub(super) fn carried(&mut self, from: Oid, to: Option<Oid>, fields: &Fields) -> Result<Fields, HistoryError> {
        let Some(to) = to else { return Ok(Fields::new()) };
        if from == to {
            return Ok(fields.clone());
        }
        let (from, to) = (self.get(from)?, self.get(to)?);
        let (Some(one), Some(other)) = (from.object(), to.object()) else { return Ok(Fields::new()) };
        if !from.is_same_object(&to) {
            return Ok(Fields::new());
        }
        Ok(carried(one, other, self.node(one), fields))
    }
}

/// Returns the `CustomResourceDefinition` of the kind of a key such as `example.org/vaults/shop/db`.
fn definition(history: &History, relative: &[u8], tree: Oid) -> Result<Option<serde_json::Value>, HistoryError> {
    let key = String::from_utf8_lossy(relative);
    let Some((group, rest)) = key.split_once('/').filter(|(group, _)| group.contains('.')) else { return Ok(None) };
    let plural = rest.split('/').next().unwrap_or_default();
    let key = format!("apiextensions.k8s.io/customresourcedefinitions/{plural}.{group}");
    let Some(blob) = changes::find(&history.repository, tree, key.as_bytes())? else { return Ok(None) };
    let parsed = Value::parse(&history.value(blob, None)?);
    Ok(parsed.and_then(|(value, _)| serde_json::from_slice(&value.write(Syntax::Json)).ok()))
}

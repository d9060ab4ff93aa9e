//! Schemas of kinds, as a merge by fields needs them: which lists are maps, sets or single values, which objects are taken whole,
//! which fields are mutually exclusive.
//!
//! The built-in kinds of Kubernetes come from a table generated from its `OpenAPI` (`docs/design/merge-schema.md`), custom
//! resources from their definitions.
//!
//! ```
//! use gitcd_merge::schema::{ListKind, Schemas};
//!
//! let schemas = Schemas::builtin();
//! let pod = schemas.of("v1", "Pod").expect("a built-in kind");
//! let containers = pod.field("spec").and_then(|spec| spec.field("containers")).expect("a known field");
//! assert_eq!(containers.list(), Some(ListKind::Map(&["name".to_owned()])));
//! let probe = containers.items().and_then(|container| container.field("livenessProbe")).expect("a known field");
//! assert!(probe.unions().any(|group| group.iter().any(|field| field == "httpGet")));
//! ```

mod builtin;
mod custom;
mod folders;
mod shape;
mod table;

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use self::folders::{Folder, group};
pub use self::shape::Shape;
use self::table::{List, Place, Table};
use crate::secrecy::{Exposure, SecretKinds};
use crate::value;

/// How a list is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind<'s> {
    /// Items with equal values of all these fields are the same item; at least one field.
    Map(&'s [String]),
    /// Equal items are the same item.
    Set,
    /// Taken whole from one side.
    Atomic,
}

/// Schemas of built-in kinds and of custom resources. Cheap to clone; [`Schemas::default`] is empty.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    builtin: Option<&'static Table>,
    custom: Arc<Table>,
    secrets: SecretKinds,
}

impl Schemas {
    /// Returns the built-in kinds of the Kubernetes version that the table was generated from, with all their versions.
    ///
    /// The table is parsed once per process, which takes about a millisecond.
    pub fn builtin() -> Schemas {
        Schemas { builtin: Some(builtin::table()), ..Schemas::default() }
    }

    /// Returns these schemas with the kinds that `CustomResourceDefinition`s (of `apiextensions.k8s.io/v1`) define, in all their
    /// versions, and a message about each malformed definition, which is skipped.
    ///
    /// A definition replaces earlier ones of the same kind and version. Nothing is ever removed, so start from
    /// [`Schemas::builtin`] when definitions change. Built-in kinds keep their schemas, since kube-apiserver serves these
    /// regardless of definitions. Takes time in proportion to the definitions, old and new.
    pub fn with_crds<'v>(&self, crds: impl IntoIterator<Item = &'v Value>) -> (Schemas, Vec<String>) {
        let mut table = Table::clone(&self.custom);
        let mut definitions = custom::Definitions::new(&mut table);
        let problems = crds.into_iter().filter_map(|crd| definitions.add(crd).err()).collect();
        (Schemas { custom: Arc::new(table), ..self.clone() }, problems)
    }

    /// Returns these schemas with additional kinds that are hidden like Secrets in reports of merges.
    #[must_use]
    pub fn with_secret_kinds(self, secrets: SecretKinds) -> Schemas {
        Schemas { secrets, ..self }
    }

    /// Returns how much may be reported about versions of an object.
    pub(super) fn exposure<'v>(&self, versions: impl IntoIterator<Item = &'v value::Value>) -> Exposure {
        versions.into_iter().map(|version| self.secrets.of_object(version)).max().unwrap_or_default()
    }

    /// Returns the root node of a kind; `None` if the kind is unknown. `api_version` is as in objects: `v1`, `apps/v1`.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<Node<'_>> {
        self.tables().find_map(|table| Some(Node { table, at: table.kind(api_version, kind)? }))
    }

    /// Returns the node with the fields of every object: `apiVersion`, `kind` and `metadata`.
    pub fn any_object() -> Node<'static> {
        Node { table: builtin::table(), at: builtin::object() }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.builtin.into_iter().chain([&*self.custom])
    }
}

/// The schema of a place in an object.
#[derive(Clone, Copy)]
pub struct Node<'s> {
    table: &'s Table,
    at: usize,
}

impl<'s> Node<'s> {
    /// Returns the node of a field, or of any key of a map with `additionalProperties`; `None` if it is unknown.
    pub fn field(&self, name: &str) -> Option<Node<'s>> {
        let place = self.place();
        self.at(place.fields.get(name).copied().or(place.values))
    }

    /// Returns the node of a list's items; `None` if it is unknown.
    pub fn items(&self) -> Option<Node<'s>> {
        self.at(self.place().items)
    }

    /// Returns the name of a built-in type of Kubernetes: `core.v1.PodSpec`.
    pub fn type_name(&self) -> Option<&'s str> {
        self.place().type_name.as_deref()
    }

    /// Returns how a list is merged; `None` if the schema does not say, or this is not known to be a list.
    pub fn list(&self) -> Option<ListKind<'s>> {
        match self.place().list.as_ref()? {
            List::Map(keys) => Some(ListKind::Map(keys)),
            List::Set => Some(ListKind::Set),
            List::Atomic => Some(ListKind::Atomic),
        }
    }

    /// Returns whether this map or object is taken whole from one side, like a single value.
    pub fn is_atomic(&self) -> bool {
        self.place().atomic
    }

    /// Returns whether this object or list item is taken whole from one side if both sides changed it: since Kubernetes says so
    /// (`retainKeys`), or since one of its fields decides which others apply.
    pub fn is_whole(&self) -> bool {
        self.place().whole
    }

    /// Returns whether this is a map with arbitrary keys; the API does not distinguish an absent one from an empty one.
    pub fn is_map(&self) -> bool {
        let place = self.place();
        place.values.is_some() && place.fields.is_empty()
    }

    /// Returns whether `null` in a field of this object means that the field is absent: in built-in kinds, if the type of the
    /// field is known. Custom resources may have nullable fields (`nullable`).
    pub fn is_absent_if_null(&self, field: &str) -> bool {
        let is_builtin = std::ptr::eq(self.table, builtin::table());
        let known = self.place().fields.get(field).map(|at| self.table.place(*at));
        is_builtin && known.is_some_and(|place| place.shape != Shape::Any)
    }

    /// Returns groups of mutually exclusive fields, of which an object has at most one; each group has two or more. A field can
    /// be in several groups.
    pub fn unions(&self) -> impl Iterator<Item = &'s [String]> + use<'s> {
        self.place().unions.iter().map(Vec::as_slice)
    }

    /// Returns groups of fields with maps or map lists that have no key in common; each group has two or more.
    pub fn disjoint(&self) -> impl Iterator<Item = &'s [String]> + use<'s> {
        self.place().disjoint.iter().map(Vec::as_slice)
    }

    /// Returns the default of a key of this map list, as JSON text.
    pub fn key_default(&self, key: &str) -> Option<&'s str> {
        self.place().defaults.get(key).map(|text| &**text)
    }

    /// Returns whether a list or a map here may have this many items, according to `minItems`, `maxItems`, `minProperties` and
    /// `maxProperties` of a definition.
    pub fn allows(&self, items: usize) -> bool {
        self.place().bounds.is_none_or(|(least, most)| (least..=most).contains(&items))
    }

    /// Returns the type of JSON that is valid here.
    pub fn shape(&self) -> Shape {
        self.place().shape
    }

    fn at(self, at: Option<usize>) -> Option<Node<'s>> {
        at.map(|at| Node { table: self.table, at })
    }

    fn place(self) -> &'s Place {
        self.table.place(self.at)
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Node").field(self.place()).finish()
    }
}

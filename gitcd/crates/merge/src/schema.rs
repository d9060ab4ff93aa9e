//! What is known of the kinds of objects that a merge by field has to know: which lists are maps, sets or one value,
//! which objects are taken whole, which fields exclude one another.
//!
//! The built-in kinds of Kubernetes come from a table that is made from its `OpenAPI`
//! (`docs/design/merge-schema.md`), custom resources from their definitions.
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

/// Schemas of built-in kinds and of custom resources. Cheap to clone; [`Schemas::default`] knows nothing.
#[derive(Clone, Debug, Default)]
pub struct Schemas {
    builtin: Option<&'static Table>,
    custom: Arc<Table>,
    secrets: SecretKinds,
}

impl Schemas {
    /// The built-in kinds of the Kubernetes version that the table was made from, with all their versions.
    ///
    /// The table is read once per process, which takes about a millisecond.
    pub fn builtin() -> Schemas {
        Schemas { builtin: Some(builtin::table()), ..Schemas::default() }
    }

    /// The same with the kinds that these `CustomResourceDefinition`s (of `apiextensions.k8s.io/v1`) define, in all their
    /// versions, and a text about each definition that was left out since it is malformed.
    ///
    /// A definition replaces what an earlier one said of the same kind and version; nothing is ever forgotten, so start
    /// from [`Schemas::builtin`] when definitions have changed. A kind of the built-in table keeps its schema, since
    /// kube-apiserver serves that one whatever a definition says. Takes time in proportion to the definitions, and to
    /// those that are already in.
    pub fn with_crds<'v>(&self, crds: impl IntoIterator<Item = &'v Value>) -> (Schemas, Vec<String>) {
        let mut table = Table::clone(&self.custom);
        let mut definitions = custom::Definitions::new(&mut table);
        let problems = crds.into_iter().filter_map(|crd| definitions.add(crd).err()).collect();
        (Schemas { custom: Arc::new(table), ..self.clone() }, problems)
    }

    /// The same with these kinds hidden like Secrets in what is reported of merges.
    #[must_use]
    pub fn with_secret_kinds(self, secrets: SecretKinds) -> Schemas {
        Schemas { secrets, ..self }
    }

    /// How much may be reported of versions of an object.
    pub(super) fn exposure<'v>(&self, versions: impl IntoIterator<Item = &'v value::Value>) -> Exposure {
        versions.into_iter().map(|version| self.secrets.of_object(version)).max().unwrap_or_default()
    }

    /// The root node of a kind, `None` if nothing is known of it. `api_version` as in objects: `v1`, `apps/v1`.
    pub fn of(&self, api_version: &str, kind: &str) -> Option<Node<'_>> {
        self.tables().find_map(|table| Some(Node { table, at: table.kind(api_version, kind)? }))
    }

    /// What every object has: `apiVersion`, `kind` and `metadata`.
    pub fn any_object() -> Node<'static> {
        Node { table: builtin::table(), at: builtin::object() }
    }

    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.builtin.into_iter().chain([&*self.custom])
    }
}

/// What is known at one place of an object.
#[derive(Clone, Copy)]
pub struct Node<'s> {
    table: &'s Table,
    at: usize,
}

impl<'s> Node<'s> {
    /// The node of a field, also of every key of a map with `additionalProperties`; `None`: nothing known of it.
    pub fn field(&self, name: &str) -> Option<Node<'s>> {
        let place = self.place();
        self.at(place.fields.get(name).copied().or(place.values))
    }

    /// The node of a list's items; `None`: nothing known of them.
    pub fn items(&self) -> Option<Node<'s>> {
        self.at(self.place().items)
    }

    /// The name of a built-in type of Kubernetes: `core.v1.PodSpec`.
    pub fn type_name(&self) -> Option<&'s str> {
        self.place().type_name.as_deref()
    }

    /// How a list at this place is merged; `None`: the schema does not say, or it is not known to be a list.
    pub fn list(&self) -> Option<ListKind<'s>> {
        match self.place().list.as_ref()? {
            List::Map(keys) => Some(ListKind::Map(keys)),
            List::Set => Some(ListKind::Set),
            List::Atomic => Some(ListKind::Atomic),
        }
    }

    /// A map or an object that is taken whole from one side, like one value.
    pub fn is_atomic(&self) -> bool {
        self.place().atomic
    }

    /// An object, or an item of a list, that is taken whole from one side if both sides changed it: since
    /// Kubernetes says so (`retainKeys`), or since one of its fields says which of the others apply.
    pub fn is_whole(&self) -> bool {
        self.place().whole
    }

    /// A map with keys of any name, of which the API makes no difference between none and an empty one.
    pub fn is_map(&self) -> bool {
        let place = self.place();
        place.values.is_some() && place.fields.is_empty()
    }

    /// Whether `null` at a field of this object means that the field is absent: in the built-in kinds wherever the type of the field is known.
    /// A custom resource may have fields that are null (`nullable`).
    pub fn is_absent_if_null(&self, field: &str) -> bool {
        let is_builtin = std::ptr::eq(self.table, builtin::table());
        let known = self.place().fields.get(field).map(|at| self.table.place(*at));
        is_builtin && known.is_some_and(|place| place.shape != Shape::Any)
    }

    /// Groups of fields of which an object has at most one; each has two or more. A field can be in several groups.
    pub fn unions(&self) -> impl Iterator<Item = &'s [String]> + use<'s> {
        self.place().unions.iter().map(Vec::as_slice)
    }

    /// Groups of fields that hold maps or map lists of which no two have a key in common; each has two or more.
    pub fn disjoint(&self) -> impl Iterator<Item = &'s [String]> + use<'s> {
        self.place().disjoint.iter().map(Vec::as_slice)
    }

    /// The JSON text of the value that an item of this map list has for a key that it leaves out.
    pub fn key_default(&self, key: &str) -> Option<&'s str> {
        self.place().defaults.get(key).map(|text| &**text)
    }

    /// Whether a list or a map here may have so many items: what `minItems`, `maxItems`, `minProperties` and `maxProperties` of a
    /// definition say.
    pub fn allows(&self, items: usize) -> bool {
        self.place().bounds.is_none_or(|(least, most)| (least..=most).contains(&items))
    }

    /// The JSON that may stand here.
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

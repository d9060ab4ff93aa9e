//! The table of the built-in kinds, as `hack/schema` writes it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::OnceLock;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};

use super::folders::Folder;
use super::shape::Shape;
use super::table::{List, Place, Table};

/// The type of every object's metadata.
const METADATA: &str = "meta.v1.ObjectMeta";

struct Builtin {
    table: Table,
    metadata: usize,
    object: usize,
    string: usize,
}

fn builtin() -> &'static Builtin {
    static BUILTIN: OnceLock<Builtin> = OnceLock::new();
    BUILTIN.get_or_init(|| {
        let (mut table, types) =
            read(include_str!("kubernetes.json")).expect("the table is checked in, and tests read it");
        let (metadata, string) = (types[METADATA], table.push(Place::of(Shape::String)));
        let fields = [("apiVersion", string), ("kind", string), ("metadata", metadata)];
        let fields = fields.map(|(name, at)| (name.to_owned(), at)).into();
        let object = table.push(Place { fields, ..Place::of(Shape::Object) });
        Builtin { table, metadata, object, string }
    })
}

/// The built-in kinds.
pub(super) fn table() -> &'static Table {
    &builtin().table
}

/// The place of every object's metadata in [`table`].
pub(super) fn metadata() -> usize {
    builtin().metadata
}

/// The place of what every object has.
pub(super) fn object() -> usize {
    builtin().object
}

/// The place of a string.
pub(super) fn string() -> usize {
    builtin().string
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kubernetes")]
    _kubernetes: String,
    /// By version and name, with a space between.
    kinds: BTreeMap<String, String>,
    folders: BTreeMap<String, Resource>,
    types: BTreeMap<String, Type>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Resource {
    /// By group and name, with a slash between; those of the core group by their names.
    kinds: Vec<String>,
    #[serde(default)]
    namespaced: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Type {
    map: Option<MapType>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    unions: Vec<Vec<String>>,
    #[serde(default)]
    disjoint: Vec<Vec<String>>,
    #[serde(default)]
    fields: BTreeMap<String, Below>,
}

/// What is below an object, a map or a list: the name of a type, or more than that.
enum Below {
    Scalar(Shape),
    Type(String),
    Place(Box<Described>),
}

impl<'de> Deserialize<'de> for Below {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Below;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a type, or a place")
            }

            // The names of types have dots, those of scalars have none.
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Below, E> {
                if name.contains('.') {
                    return Ok(Below::Type(name.to_owned()));
                }
                Shape::deserialize(StrDeserializer::new(name)).map(Below::Scalar)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Below, A::Error> {
                Described::deserialize(MapAccessDeserializer::new(map)).map(|place| Below::Place(Box::new(place)))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    #[serde(rename = "type")]
    of: Option<String>,
    map: Option<MapType>,
    list: Option<ListType>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    defaults: BTreeMap<String, serde_json::Value>,
    items: Option<Below>,
    values: Option<Below>,
    #[serde(default)]
    whole: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MapType {
    Atomic,
    Granular,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListType {
    Map,
    Set,
    Atomic,
}

/// The table, and the places of its types by their names.
fn read(text: &str) -> Result<(Table, HashMap<String, usize>), String> {
    let file: File = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mut reader =
        Reader { table: Table::default(), types: HashMap::new(), scalars: Vec::new(), extended: Vec::new() };
    for name in file.types.keys() {
        let place = reader.table.push(Place::default());
        reader.types.insert(name.clone(), place);
    }
    for (name, of) in file.types {
        reader.define(&name, of)?;
    }
    let Reader { mut table, types, extended, .. } = reader;
    for Extended { at, from, atomic, whole } in extended {
        let from = table.place(from);
        let (atomic, whole) = (atomic.unwrap_or(from.atomic), whole || from.whole);
        *table.place_mut(at) = Place { atomic, whole, ..from.clone() };
    }
    for (kind, name) in file.kinds {
        let (api_version, kind) = kind.split_once(' ').ok_or_else(|| format!("kind {kind:?} has no version"))?;
        let root = types.get(&name).ok_or_else(|| format!("kind {kind}: no type {name}"))?;
        table.define(api_version, kind, *root);
    }
    for (path, Resource { kinds, namespaced }) in file.folders {
        let kinds = kinds.iter().map(|kind| kind.split_once('/').unwrap_or(("", kind)));
        let kinds = kinds.map(|(group, kind)| (group.to_owned(), kind.to_owned()));
        table.add_folder(path, Folder { kinds: kinds.collect(), is_namespaced: namespaced });
    }
    if types.contains_key(METADATA) { Ok((table, types)) } else { Err(format!("no type {METADATA}")) }
}

struct Reader {
    table: Table,
    types: HashMap<String, usize>,
    /// There is one place for all scalars of a shape.
    scalars: Vec<(Shape, usize)>,
    /// Places that are like those of a type, which may not be known yet, but for what is said here.
    extended: Vec<Extended>,
}

struct Extended {
    at: usize,
    from: usize,
    atomic: Option<bool>,
    whole: bool,
}

impl Reader {
    fn define(&mut self, name: &str, of: Type) -> Result<(), String> {
        let Type { map, whole, unions, disjoint, fields } = of;
        let fields =
            fields.into_iter().map(|(field, below)| Ok((field, self.below(below)?))).collect::<Result<_, String>>();
        let fields = fields.map_err(|e| format!("type {name}: {e}"))?;
        let (at, atomic) = (self.types[name], matches!(map, Some(MapType::Atomic)));
        let type_name = Some(name.into());
        *self.table.place_mut(at) =
            Place { type_name, fields, atomic, whole, unions, disjoint, ..Place::of(Shape::Object) };
        Ok(())
    }

    fn below(&mut self, below: Below) -> Result<usize, String> {
        let described = match below {
            Below::Scalar(shape) => return Ok(self.scalar(shape)),
            Below::Type(name) => return self.named(&name),
            Below::Place(described) => *described,
        };
        let Described { of, map, list, keys, defaults, items, values, whole } = described;
        let atomic = map.map(|map| matches!(map, MapType::Atomic));
        if let Some(name) = of {
            let from = self.named(&name)?;
            let at = self.table.push(Place::default());
            self.extended.push(Extended { at, from, atomic, whole });
            return Ok(at);
        }
        let shape = if list.is_some() { Shape::List } else { Shape::Object };
        let list = list.map(|list| match list {
            ListType::Map => List::Map(keys),
            ListType::Set => List::Set,
            ListType::Atomic => List::Atomic,
        });
        let items = items.map(|items| self.below(items)).transpose()?;
        let values = values.map(|values| self.below(values)).transpose()?;
        let defaults = defaults.into_iter().map(|(key, value)| (key, value.to_string().into())).collect();
        let atomic = atomic == Some(true);
        Ok(self.table.push(Place { values, items, list, defaults, atomic, whole, ..Place::of(shape) }))
    }

    fn scalar(&mut self, shape: Shape) -> usize {
        if let Some((_, at)) = self.scalars.iter().find(|(known, _)| *known == shape) {
            return *at;
        }
        let at = self.table.push(Place::of(shape));
        self.scalars.push((shape, at));
        at
    }

    fn named(&self, name: &str) -> Result<usize, String> {
        self.types.get(name).copied().ok_or_else(|| format!("no type {name}"))
    }
}

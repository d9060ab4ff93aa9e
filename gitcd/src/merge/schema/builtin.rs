//! The table of the built-in kinds, as `hack/schema` writes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use serde::Deserialize;

use super::table::{List, Place, Table};

/// The type of every object's metadata.
const METADATA: &str = "meta.v1.ObjectMeta";

struct Builtin {
    table: Table,
    metadata: usize,
}

fn builtin() -> &'static Builtin {
    static BUILTIN: OnceLock<Builtin> = OnceLock::new();
    BUILTIN.get_or_init(|| {
        let (table, types) = read(include_str!("kubernetes.json")).expect("the table is checked in, and tests read it");
        Builtin { metadata: types[METADATA], table }
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kubernetes")]
    _kubernetes: String,
    /// By version and name, with a space between.
    kinds: BTreeMap<String, String>,
    types: BTreeMap<String, Type>,
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
    fields: BTreeMap<String, Below>,
}

/// What is below an object, a map or a list: the name of a type, or more than that.
#[derive(Deserialize)]
#[serde(untagged)]
enum Below {
    Type(String),
    Place(Box<Described>),
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
    items: Option<Below>,
    values: Option<Below>,
    #[serde(default)]
    whole: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum MapType {
    Atomic,
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
    let mut reader = Reader { table: Table::default(), types: HashMap::new(), extended: Vec::new() };
    for name in file.types.keys() {
        let place = reader.table.push(Place::default());
        reader.types.insert(name.clone(), place);
    }
    for (name, of) in file.types {
        reader.define(&name, of)?;
    }
    let Reader { mut table, types, extended } = reader;
    for (at, from) in extended {
        *table.place_mut(at) = Place { whole: true, ..table.place(from).clone() };
    }
    for (kind, name) in file.kinds {
        let (api_version, kind) = kind.split_once(' ').ok_or_else(|| format!("kind {kind:?} has no version"))?;
        let root = types.get(&name).ok_or_else(|| format!("kind {kind}: no type {name}"))?;
        table.define(api_version, kind, *root);
    }
    if types.contains_key(METADATA) { Ok((table, types)) } else { Err(format!("no type {METADATA}")) }
}

struct Reader {
    table: Table,
    types: HashMap<String, usize>,
    /// Places that are taken whole and otherwise like those of a type, which may not be known yet.
    extended: Vec<(usize, usize)>,
}

impl Reader {
    fn define(&mut self, name: &str, of: Type) -> Result<(), String> {
        let Type { map, whole, unions, fields } = of;
        let fields =
            fields.into_iter().map(|(field, below)| Ok((field, self.below(below)?))).collect::<Result<_, String>>();
        let fields = fields.map_err(|e| format!("type {name}: {e}"))?;
        let at = self.types[name];
        *self.table.place_mut(at) = Place { fields, atomic: map.is_some(), whole, unions, ..Place::default() };
        Ok(())
    }

    fn below(&mut self, below: Below) -> Result<usize, String> {
        let described = match below {
            Below::Type(name) => return self.named(&name),
            Below::Place(described) => *described,
        };
        let Described { of, map, list, keys, items, values, whole } = described;
        if let Some(name) = of {
            let from = self.named(&name)?;
            let at = self.table.push(Place::default());
            self.extended.push((at, from));
            return Ok(at);
        }
        let list = list.map(|list| match list {
            ListType::Map => List::Map(keys),
            ListType::Set => List::Set,
            ListType::Atomic => List::Atomic,
        });
        let items = items.map(|items| self.below(items)).transpose()?;
        let values = values.map(|values| self.below(values)).transpose()?;
        let place = Place { list, items, values, atomic: map.is_some(), whole, ..Place::default() };
        Ok(self.table.push(place))
    }

    fn named(&self, name: &str) -> Result<usize, String> {
        self.types.get(name).copied().ok_or_else(|| format!("no type {name}"))
    }
}

//! Schemas of custom resources, from their definitions.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

use super::builtin;
use super::folders::Folder;
use super::shape::Shape;
use super::table::{List, Place, Table};

/// Deeper schemas are rejected. No value that gitcd parses is deeper (`docs/design/git.md`).
const MAX_DEPTH: usize = 512;

/// Longer unions, and further ones of an object, are not those of a definition that anybody wrote by hand: their fields are merged
/// like others.
const MAX_MEMBERS: usize = 64;
const MAX_UNIONS: usize = 64;

/// Adds definitions to a table.
pub(super) struct Definitions<'t> {
    table: &'t mut Table,
    /// Indexes of the common metadata and of a string, once they are in the table.
    common: Option<(usize, usize)>,
}

impl<'t> Definitions<'t> {
    pub(super) fn new(table: &'t mut Table) -> Definitions<'t> {
        Definitions { table, common: None }
    }

    /// Adds the kinds of a definition, in all versions; none of them in case of an error.
    pub(super) fn add(&mut self, crd: &Value) -> Result<(), String> {
        let mut import = |at: usize| self.table.import(builtin::table(), at);
        let common = *self.common.get_or_insert_with(|| (import(builtin::metadata()), import(builtin::string())));
        let len = self.table.len();
        self.define(crd, common).map_err(|problem| {
            self.table.truncate(len);
            let name = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("without a name");
            format!("CustomResourceDefinition {name}: {problem}")
        })
    }

    fn define(&mut self, crd: &Value, (metadata, string): (usize, usize)) -> Result<(), String> {
        if crd["apiVersion"] != "apiextensions.k8s.io/v1" || crd["kind"] != "CustomResourceDefinition" {
            return Err("not a CustomResourceDefinition of apiextensions.k8s.io/v1".to_owned());
        }
        let spec = &crd["spec"];
        let group = text(&spec["group"]).ok_or("no spec.group")?;
        let kind = text(&spec["names"]["kind"]).ok_or("no spec.names.kind")?;
        let versions = spec["versions"].as_array().ok_or("no spec.versions")?;
        let mut roots = Vec::with_capacity(versions.len());
        for (i, version) in versions.iter().enumerate() {
            let within = |problem: String| format!("spec.versions[{i}].{problem}");
            let name = text(&version["name"]).ok_or_else(|| within("name: missing".to_owned()))?;
            let api_version = format!("{group}/{name}");
            if builtin::table().kind(&api_version, kind).is_some() {
                return Err(format!("{api_version} {kind} is built in"));
            }
            let schema = match &version["schema"]["openAPIV3Schema"] {
                // Definitions created as v1beta1 may have no schema.
                Value::Null => &Map::new(),
                schema => object(schema).map_err(|e| within(format!("schema.openAPIV3Schema{e}")))?,
            };
            let mut walk = Walk { table: self.table, metadata, string };
            let root = walk.map(schema, true, 0).map_err(|e| within(format!("schema.openAPIV3Schema{e}")))?;
            roots.push((api_version, root));
        }
        for (api_version, root) in roots {
            let root = self.table.push(root);
            self.table.define(&api_version, kind, root);
        }
        if let Some(plural) = text(&spec["names"]["plural"]) {
            let is_namespaced = spec["scope"] != "Cluster";
            let kinds = vec![(group.to_owned(), kind.to_owned())];
            self.table.add_folder(format!("{group}/{plural}"), Folder { kinds, is_namespaced });
        }
        Ok(())
    }
}

fn text(value: &Value) -> Option<&str> {
    value.as_str().filter(|text| !text.is_empty())
}

/// Messages start with the path of the problem.
fn object(value: &Value) -> Result<&Map<String, Value>, String> {
    value.as_object().ok_or_else(|| ": not an object".to_owned())
}

struct Walk<'t> {
    table: &'t mut Table,
    metadata: usize,
    string: usize,
}

impl Walk<'_> {
    /// Returns the place of a schema, or `None` if it says nothing.
    fn place(&mut self, schema: &Value, depth: usize) -> Result<Option<usize>, String> {
        if depth > MAX_DEPTH {
            return Err(": too deep".to_owned());
        }
        let schema = object(schema)?;
        let is = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(true));
        let place = match schema.get("type").and_then(Value::as_str) {
            _ if is("x-kubernetes-int-or-string") => Place::of(Shape::IntOrString),
            Some("array") => self.list(schema, depth)?,
            Some("string") => Place::of(Shape::String),
            Some("boolean") => Place::of(Shape::Boolean),
            Some("integer") => Place::of(Shape::Integer),
            Some("number") => Place::of(Shape::Number),
            _ => self.map(schema, is("x-kubernetes-embedded-resource"), depth)?,
        };
        Ok((place != Place::default()).then(|| self.table.push(place)))
    }

    fn list(&mut self, schema: &Map<String, Value>, depth: usize) -> Result<Place, String> {
        let list = match word(schema, "x-kubernetes-list-type")? {
            None | Some("atomic") => List::Atomic,
            Some("set") => List::Set,
            Some("map") => List::Map(keys(schema)?),
            Some(other) => return Err(format!(".x-kubernetes-list-type: unknown: {other}")),
        };
        let items = given(schema, "items").map(|items| self.place(items, depth + 1)).transpose();
        let items = items.map_err(|e| format!(".items{e}"))?.flatten();
        let defaults = match &list {
            List::Map(keys) => defaults(schema, keys),
            List::Set | List::Atomic => BTreeMap::new(),
        };
        Ok(Place { list: Some(list), items, defaults, bounds: bounds(schema, "Items"), ..Place::of(Shape::List) })
    }

    /// Returns the place of an object or a map; `embedded` means with the metadata of a resource.
    fn map(&mut self, schema: &Map<String, Value>, embedded: bool, depth: usize) -> Result<Place, String> {
        let atomic = match word(schema, "x-kubernetes-map-type")? {
            None | Some("granular") => false,
            Some("atomic") => true,
            Some(other) => return Err(format!(".x-kubernetes-map-type: unknown: {other}")),
        };
        let is_object = embedded || schema.get("type").is_some_and(|of| of == "object");
        let shape = if is_object { Shape::Object } else { Shape::Any };
        let mut place =
            Place { unions: unions(schema), atomic, bounds: bounds(schema, "Properties"), ..Place::of(shape) };
        if let Some(properties) = given(schema, "properties") {
            for (name, of) in object(properties).map_err(|e| format!(".properties{e}"))? {
                let below = self.place(of, depth + 1).map_err(|e| format!(".properties.{name}{e}"))?;
                place.fields.extend(below.map(|below| (name.clone(), below)));
            }
        }
        if let Some(values) = given(schema, "additionalProperties").filter(|values| !values.is_boolean()) {
            place.values = self.place(values, depth + 1).map_err(|e| format!(".additionalProperties{e}"))?;
        }
        if embedded {
            // Definitions may restrict a resource's metadata, but not redefine it.
            place.fields.insert("metadata".to_owned(), self.metadata);
            place.fields.extend(["apiVersion", "kind"].map(|name| (name.to_owned(), self.string)));
        }
        Ok(place)
    }
}

fn word<'v>(schema: &'v Map<String, Value>, name: &str) -> Result<Option<&'v str>, String> {
    let word = given(schema, name);
    word.map(|value| value.as_str().ok_or_else(|| format!(".{name}: not a string"))).transpose()
}

/// Returns a keyword; `null` counts as absent.
fn given<'v>(schema: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    schema.get(name).filter(|value| !value.is_null())
}

/// Returns the allowed number of items or properties, if the schema limits it.
fn bounds(schema: &Map<String, Value>, of: &str) -> Option<(usize, usize)> {
    let bound = |end: &str| schema.get(&format!("{end}{of}"))?.as_u64().and_then(|bound| usize::try_from(bound).ok());
    let (least, most) = (bound("min"), bound("max"));
    (least.is_some() || most.is_some()).then(|| (least.unwrap_or(0), most.unwrap_or(usize::MAX)))
}

/// Returns the defaults of the keys in the schema of the items, as JSON texts.
fn defaults(schema: &Map<String, Value>, keys: &[String]) -> BTreeMap<String, Box<str>> {
    let properties = schema.get("items").and_then(|items| items.get("properties")).and_then(Value::as_object);
    let default = |key: &String| {
        let default = properties?.get(key)?.get("default").filter(|value| !value.is_null())?;
        Some((key.clone(), default.to_string().into()))
    };
    keys.iter().filter_map(default).collect()
}

fn keys(schema: &Map<String, Value>) -> Result<Vec<String>, String> {
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
    let keys = keys.and_then(|keys| keys.iter().map(|key| text(key).map(str::to_owned)).collect::<Option<Vec<_>>>());
    keys.filter(|keys| !keys.is_empty()).ok_or_else(|| ".x-kubernetes-list-map-keys: not a list of names".to_owned())
}

/// Finds mutually exclusive fields in the common forms of definitions, since schemas have no keyword for them.
fn unions(schema: &Map<String, Value>) -> Vec<Vec<String>> {
    let all_of = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    let one_of = [schema].into_iter().chain(all_of.filter_map(Value::as_object)).filter_map(required);
    let only_one = schema.get("maxProperties").is_some_and(|max| max == 1);
    let properties = schema.get("properties").and_then(Value::as_object).filter(|_| only_one);
    let single = properties.map(|properties| properties.keys().cloned().collect());
    let mut unions: Vec<Vec<String>> = one_of.chain(single).filter(|group: &Vec<String>| group.len() > 1).collect();
    unions.iter_mut().for_each(|group| group.sort());
    unions.sort();
    unions.dedup();
    unions.retain(|group| group.len() <= MAX_MEMBERS);
    unions.truncate(MAX_UNIONS);
    unions
}

/// Returns the fields that `oneOf` requires one by one: an object with two of them would match two alternatives. There may be
/// further alternatives, such as none of them.
fn required(schema: &Map<String, Value>) -> Option<Vec<String>> {
    let (mut group, mut known): (Vec<String>, HashSet<&str>) = (Vec::new(), HashSet::new());
    for alternative in schema.get("oneOf")?.as_array()?.iter().filter_map(Value::as_object) {
        let only = alternative.keys().all(|keyword| matches!(keyword.as_str(), "required" | "description" | "title"));
        let fields = alternative.get("required").and_then(Value::as_array).filter(|_| only);
        if let Some([Value::String(field)]) = fields.map(Vec::as_slice)
            && known.insert(field)
        {
            group.push(field.clone());
        }
    }
    Some(group)
}

//! A stored value as a tree of fields, with every scalar as written.
//!
//! Numbers, escapes and the order of fields are preserved, so that a merge changes only what a side changed.

use std::borrow::Cow;
use std::collections::HashMap;

/// A JSON value. Scalars and names of fields are JSON text.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string with quotes, a number, `true`, `false` or `null`.
    Scalar(Box<str>),
    /// A list.
    List(Vec<Value>),
    /// An object.
    Map(Map),
}

/// The fields of an object in order; names are unique.
#[derive(Clone, Debug, Default)]
pub struct Map(pub(super) Vec<(Box<str>, Value)>);

/// The syntax of a value, in which its merge is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Syntax {
    /// JSON. A merged value is written without white space, like by kube-apiserver.
    Json,
    /// YAML.
    Yaml,
}

/// Returns the text of a string, or the JSON text of another scalar.
pub(super) fn text(scalar: &str) -> Cow<'_, str> {
    match scalar.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(inner) => serde_json::from_str::<String>(scalar).map_or(Cow::Borrowed(inner), Cow::Owned),
        None => Cow::Borrowed(scalar),
    }
}

/// Largest value that is read as an object. kube-apiserver accepts requests of up to 3 MiB, and etcd stores 1.5 MiB by default;
/// reading an object takes up to some hundred times its size in memory.
pub const MAX_BYTES: usize = 4 << 20;

/// Most bytes of the names on the path to a field. A conflict, and whatever else is reported of a field, has its path.
pub(super) const MAX_PATH_BYTES: usize = 16 << 10;

/// Why an object with a longer path is not read.
pub(super) const LONG_PATH: &str = "the names on the path to one of its fields have more than 16 KiB";

/// Formats equal values as the same text. Takes time in proportion to the value.
pub(super) fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    let normalized = |plain: &str| serde_json::Value::from(plain).to_string();
    match value {
        Value::Scalar(scalar) if scalar.starts_with('"') => out.push_str(&normalized(&text(scalar))),
        Value::Scalar(scalar) => out.push_str(scalar),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut fields: Vec<(Cow<'_, str>, &Value)> = map.iter().collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            out.push('{');
            for (at, (name, value)) in fields.into_iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                out.push_str(&normalized(&name));
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
    }
}

impl Value {
    /// Returns JSON without white space and without a newline.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_json(&mut out);
        out
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        match self {
            Self::Scalar(text) => out.extend_from_slice(text.as_bytes()),
            Self::List(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write_json(out);
                }
                out.push(b']');
            }
            Self::Map(map) => {
                out.push(b'{');
                for (index, (name, value)) in map.0.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(name.as_bytes());
                    out.push(b':');
                    value.write_json(out);
                }
                out.push(b'}');
            }
        }
    }

    /// Returns the fields of an object.
    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the items of a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the text of a string, or the JSON text of another scalar.
    pub fn as_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Scalar(scalar) => Some(text(scalar)),
            _ => None,
        }
    }

    /// Returns the value at a path of field names.
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        path.iter().try_fold(self, |value, name| value.as_map()?.get(name))
    }

    /// Returns the text of the scalar at a path, unless the API treats it as absent: `null` or an empty string.
    pub fn given(&self, path: &[&str]) -> Option<Cow<'_, str>> {
        let value = self.at(path)?;
        let is_null = matches!(value, Self::Scalar(text) if &**text == "null");
        value.as_text().filter(|text| !is_null && !text.is_empty())
    }

    /// Creates a string.
    pub fn string(text: &str) -> Self {
        Self::Scalar(serde_json::Value::from(text).to_string().into())
    }

    /// Creates a number.
    pub fn number(number: i64) -> Self {
        Self::Scalar(number.to_string().into())
    }

    /// Returns at most `limit` bytes of its JSON text, for display.
    pub fn excerpt(&self, limit: usize) -> String {
        let mut text = String::from_utf8(self.to_json()).expect("the value consists of text");
        if text.len() > limit {
            text.truncate(text.floor_char_boundary(limit));
            text.push('…');
        }
        text
    }
}

/// Equal in meaning: the order of fields and the spelling of strings do not count, the spelling of numbers does.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(one), Self::Scalar(other)) => {
                one == other || (one.starts_with('"') && other.starts_with('"') && text(one) == text(other))
            }
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Map(one), Self::Map(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        if self.0.len() != other.0.len() {
            return false;
        }
        // Fields nearly always have the same order.
        let same_order = self.0.iter().zip(&other.0).all(|((one, _), (other, _))| one == other);
        if same_order {
            return self.0.iter().zip(&other.0).all(|((_, one), (_, other))| one == other);
        }
        let names = other.names();
        self.iter().all(|(name, value)| names.get(&*name).is_some_and(|index| other.0[*index].1 == *value))
    }
}

impl Map {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the value of a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(found, _)| text(found) == name).map(|(_, value)| value)
    }

    /// Returns the fields in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Cow<'_, str>, &Value)> + ExactSizeIterator {
        self.0.iter().map(|(name, value)| (text(name), value))
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the index of each field by name.
    pub(super) fn names(&self) -> HashMap<Cow<'_, str>, usize> {
        self.0.iter().enumerate().map(|(index, (name, _))| (text(name), index)).collect()
    }

    /// Returns the field at an index.
    pub(super) fn field(&self, index: usize) -> (&str, &Value) {
        let (name, value) = &self.0[index];
        (name, value)
    }

    /// Appends a field, given the JSON text of its name, which must be new.
    pub(super) fn push(&mut self, name: &str, value: Value) {
        self.0.push((name.into(), value));
    }

    /// Sets a field; a new one is appended.
    pub fn set(&mut self, name: &str, value: Value) {
        match self.0.iter_mut().find(|(found, _)| text(found) == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((serde_json::Value::from(name).to_string().into(), value)),
        }
    }

    /// Removes a field.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(found, _)| text(found) != name);
    }

    /// Returns whether both have the same fields with the same values, except for these names. Takes one pass over both, without
    /// copies.
    pub fn equals_except(&self, other: &Self, names: &[&str]) -> bool {
        let is_compared = |(name, _): &(Cow<'_, str>, &Value)| !names.contains(&&**name);
        let count = |map: &Self| map.iter().filter(is_compared).count();
        let places = other.names();
        let has =
            |(name, value): (Cow<'_, str>, &Value)| places.get(&name).is_some_and(|at| other.field(*at).1 == value);
        count(self) == count(other) && self.iter().filter(is_compared).all(has)
    }

    /// Keeps the fields whose names satisfy `is_kept`.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| is_kept(&text(name)));
    }

    /// Returns the value of a field for modification.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Value> {
        self.0.iter_mut().find(|(found, _)| text(found) == name).map(|(_, value)| value)
    }
}

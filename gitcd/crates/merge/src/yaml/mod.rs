//! YAML as kubectl and kube-apiserver read it, and written so that readers of YAML 1.1 and of YAML 1.2 agree.
//!
//! The parser defines the grammar ([`tree`]); the meaning of scalars ([`scalar`]), aliases and merge keys ([`construct`]) is that
//! of Kubernetes. [`rewrite`] changes only the necessary parts of a document.

mod construct;
#[cfg(test)]
mod differential;
mod pairs;
mod rewrite;
mod scalar;
mod strict;
#[cfg(test)]
mod tests;
mod tree;
mod write;

use std::fmt;

use self::tree::Tree;
use super::value::{Map, Syntax, Value};

/// Why a value cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1; 0 for the whole text.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

impl Unreadable {
    pub(super) fn new(line: usize, reason: String) -> Self {
        Self { line, reason }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unreadable {}

/// Parses a document. Takes time and memory in proportion to its size, and to the expansion of its aliases, which is limited.
///
/// # Errors
/// What is wrong, and on which line.
pub(super) fn read(text: &str) -> Result<Value, Unreadable> {
    construct::construct(&Tree::parse(text)?)
}

/// Writes a document; `None` if it has a string or a number that YAML cannot represent.
pub(super) fn write(value: &Value) -> Option<String> {
    write::document(value)
}

/// Writes `new` over a document: unchanged lines are kept byte for byte. A document that cannot be parsed, or whose aliases are
/// too intricate, is written from scratch. The result is parsed as `new`.
///
/// Costs a few passes over the document.
pub fn rewrite(original: &[u8], new: &Value) -> Vec<u8> {
    let edited = std::str::from_utf8(original).ok().and_then(|text| edited(text, new));
    edited.map_or_else(|| new.write(Syntax::Yaml), String::into_bytes)
}

fn edited(text: &str, new: &Value) -> Option<String> {
    let tree = Tree::parse(text).ok()?;
    let old = construct::construct(&tree).ok()?;
    let new = as_read(new)?;
    if old == new {
        return Some(text.to_owned());
    }
    let edited = rewrite::edit(&tree, &old, &new)?;
    (read(&edited).ok()? == new).then_some(edited)
}

/// Returns the value as it is parsed after being written as YAML: numbers with a point but no fraction become integers.
fn as_read(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Scalar(json) if json.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => {
            let read = scalar::resolve(None, &json.as_ref().into(), true).ok()?.json().ok()?;
            Value::Scalar(read.into())
        }
        Value::Scalar(_) => value.clone(),
        Value::List(items) => Value::List(items.iter().map(as_read).collect::<Option<_>>()?),
        Value::Map(map) => {
            let mut read = Map::default();
            for place in 0..map.len() {
                let (name, value) = map.field(place);
                read.push(name, as_read(value)?);
            }
            Value::Map(read)
        }
    })
}

/// Parses a document into a type, as Kubernetes reads YAML.
///
/// # Errors
/// What is wrong, and on which line; or why the value does not have that type.
pub fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    let json = read(text)?.write(Syntax::Json);
    serde_json::from_slice(&json).map_err(|error| Unreadable::new(0, error.to_string()))
}

/// Returns the number of comments in a document.
pub(super) fn comments(original: &[u8]) -> usize {
    std::str::from_utf8(original).ok().and_then(|text| Tree::parse(text).ok()).map_or(0, |tree| tree.comments)
}

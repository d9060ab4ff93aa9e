//! YAML as kubectl and kube-apiserver read it, and written so that readers of YAML 1.1 and of YAML 1.2 agree.
//!
//! The grammar is the parser's ([`tree`]); what scalars mean ([`scalar`]), and what becomes of aliases and merge keys
//! ([`construct`]), is that of Kubernetes. [`rewrite`] changes in a document only what has to change.

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

/// Why a value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1; 0 for the whole text.
    pub line: usize,
    /// What is wrong, in words.
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

/// Reads a document. Takes time and memory in proportion to it, and to what its aliases stand for, which is bounded.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn read(text: &str) -> Result<Value, Unreadable> {
    construct::construct(&Tree::parse(text)?)
}

/// Writes a document; `None` if it has a string or a number that YAML cannot have.
pub(super) fn write(value: &Value) -> Option<String> {
    write::document(value)
}

/// Writes `new` over a document: lines of which nothing has changed stay as they are, byte for byte. A document that cannot be
/// read is written anew, as is one that aliases make too intricate. What results is read as `new`.
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

/// The value as it is read when it was written as YAML: numbers that have a point but no fraction are integers there.
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

/// Reads a document into a type, as Kubernetes reads YAML.
///
/// # Errors
/// What is wrong with it, and where; or why its value is not of that type.
pub fn from_str<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Unreadable> {
    let json = read(text)?.write(Syntax::Json);
    serde_json::from_slice(&json).map_err(|error| Unreadable::new(0, error.to_string()))
}

/// The number of comments in a document.
pub(super) fn comments(original: &[u8]) -> usize {
    std::str::from_utf8(original).ok().and_then(|text| Tree::parse(text).ok()).map_or(0, |tree| tree.comments)
}

//! Keys of list items.

use std::collections::{HashMap, HashSet};

use crate::schema::{ListKind, Node};
use crate::value::{self, Value, canonical};

/// The key fields of a list, each with its default as JSON text.
pub(crate) struct Keys<'s>(Vec<(&'s str, &'s str)>);

/// The identity of an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Id {
    /// The JSON texts of its key fields, which are unique in its list.
    Key(Vec<String>),
    /// The whole item, and the number of equal items before it: for items that share their keys, or have none. A side that
    /// changes such an item makes another one, so that no item is lost.
    Content(String, usize),
}

/// The value of a missing key field without a default.
const NONE: &str = "null";

/// Longest text of a key: it is a part of the path of everything in its item. Kubernetes' names have at most 253 bytes.
const MAX_KEY_BYTES: usize = 4 << 10;

impl<'s> Keys<'s> {
    /// Creates keys of one field without a default.
    pub(crate) fn named(name: &'s str) -> Self {
        Self(vec![(name, NONE)])
    }

    /// Creates keys of several fields without defaults.
    pub(super) fn all(names: &[&'s str]) -> Self {
        Self(names.iter().map(|name| (*name, NONE)).collect())
    }

    /// Returns the keys of a map list; `None` for any other list.
    pub(crate) fn of(node: Node<'s>) -> Option<Self> {
        let Some(ListKind::Map(keys)) = node.list() else { return None };
        Some(Self(keys.iter().map(|key| (&**key, node.key_default(key).unwrap_or(NONE))).collect()))
    }

    /// Returns whether this is the only key field.
    pub(crate) fn are(&self, name: &str) -> bool {
        matches!(&self.0[..], [(only, _)] if *only == name)
    }

    /// Returns the JSON texts of the keys of an item. A key that is absent, `null` or an empty string has its default. `None` if
    /// the item is not an object, or a key is not a scalar or too long.
    pub(crate) fn key(&self, item: &Value) -> Option<Vec<String>> {
        let map = item.as_map()?;
        let text = |(name, default): &(&str, &str)| match map.get(name) {
            None => Some((*default).to_owned()),
            Some(Value::Scalar(text)) if matches!(&**text, "null" | "\"\"") => Some((*default).to_owned()),
            Some(Value::Scalar(text)) if text.starts_with('"') => {
                // Normalizes the spelling.
                Some(serde_json::Value::from(&*value::text(text)).to_string())
            }
            Some(Value::Scalar(text)) => Some(text.to_string()),
            Some(_) => None,
        };
        self.0.iter().map(|field| text(field).filter(|text| text.len() <= MAX_KEY_BYTES)).collect()
    }

    /// Returns whether every item has keys, all distinct.
    pub(super) fn are_distinct(&self, items: &[Value]) -> bool {
        let mut seen = HashSet::with_capacity(items.len());
        items.iter().all(|item| self.key(item).is_some_and(|key| seen.insert(key)))
    }

    /// Returns the identities of the items of three versions of a list. No version has one twice.
    pub(super) fn ids(&self, versions: [&[Value]; 3]) -> [Vec<Id>; 3] {
        let keys = versions.map(|items| items.iter().map(|item| self.key(item)).collect::<Vec<_>>());
        let mut repeated: HashSet<Vec<String>> = HashSet::new();
        for keys in &keys {
            let mut seen = HashSet::with_capacity(keys.len());
            repeated.extend(keys.iter().flatten().filter(|key| !seen.insert(*key)).cloned());
        }
        let mut keys = keys.into_iter();
        versions.map(|items| {
            let mut numbers = Numbers::default();
            let id = |(item, key): (&Value, Option<Vec<String>>)| match key {
                Some(key) if !repeated.contains(&key) => Id::Key(key),
                _ => numbers.next(canonical(item)),
            };
            items.iter().zip(keys.next().unwrap_or_default()).map(id).collect()
        })
    }

    /// Returns the keys with their names, as in `managedFields` and conflicts.
    pub(super) fn step(&self, id: &Id) -> Vec<(String, String)> {
        match id {
            Id::Key(texts) => self.named_texts(texts),
            Id::Content(..) => Vec::new(),
        }
    }

    /// Returns the names and texts of keys, sorted by name.
    pub(crate) fn named_texts(&self, texts: &[String]) -> Vec<(String, String)> {
        let named = self.0.iter().zip(texts).map(|((name, _), text)| ((*name).to_owned(), text.clone()));
        let mut step: Vec<_> = named.collect();
        step.sort();
        step
    }
}

/// Counts equal items.
#[derive(Default)]
pub(super) struct Numbers(HashMap<String, usize>);

impl Numbers {
    /// Returns the identity of the next item with this content.
    pub(super) fn next(&mut self, content: String) -> Id {
        let number = self.0.entry(content.clone()).and_modify(|number| *number += 1).or_default();
        Id::Content(content, *number)
    }
}

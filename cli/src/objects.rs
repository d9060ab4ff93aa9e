//! Objects, as words on the command line name them.

use anyhow::bail;
use trishanku::kinds::{Kind, Kinds};

/// The namespace that kubectl uses by default.
pub(crate) const NAMESPACE: &str = "default";

/// What a word on the command line names: an object, or all objects of a kind.
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
}

/// Parses words: each `KIND/NAME`, or one `KIND` followed by names. Calls `all` once, if a kind is not built in.
///
/// # Errors
/// The word that is not an object, and how to write it.
pub(crate) fn parse(words: &[String], all: impl Fn() -> anyhow::Result<Kinds>) -> anyhow::Result<Vec<Object>> {
    let builtin = Kinds::builtin();
    let mut loaded = None;
    let mut kind = |name: &str| -> anyhow::Result<Kind> {
        if let Ok(kind) = builtin.find(name) {
            return Ok(kind.clone());
        }
        let all = match &loaded {
            Some(all) => all,
            None => loaded.insert(all()?),
        };
        Ok(all.find(name)?.clone())
    };
    let mut found = Vec::new();
    match words {
        [first, names @ ..] if !first.contains('/') => {
            if let Some(name) = names.iter().find(|name| name.contains('/')) {
                bail!("{first:?} is a kind, so names of its objects must follow, and {name:?} is not a name");
            }
            let kind = kind(first)?;
            found.extend(names.iter().map(|name| Object { kind: kind.clone(), name: Some(name.clone()) }));
            if names.is_empty() {
                found.push(Object { kind, name: None });
            }
        }
        words => {
            for word in words {
                let Some((of, name)) = word.split_once('/').filter(|(of, name)| !of.is_empty() && !name.is_empty())
                else {
                    bail!("{word:?} is not an object: name each as KIND/NAME");
                };
                found.push(Object { kind: kind(of)?, name: Some(name.to_owned()) });
            }
        }
    }
    if found.iter().any(|object| object.kind.plural == "events") {
        bail!("events are never committed, so they have no history");
    }
    Ok(found)
}

//! Who last wrote a field, according to `metadata.managedFields`.
//!
//! Source: Kubernetes, *Server-Side Apply*, and `structured-merge-diff/fieldpath` for the keys of `fieldsV1`.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::value::{Map, Value};

/// A step on the path to a field of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A field, by its name.
    Field(String),
    /// An item of a list with keys: names and JSON texts, sorted by name.
    Item(Vec<(String, String)>),
}

impl Step {
    /// Formats the step as in `fieldsV1`.
    fn owned(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Item(keys) => {
                let fields: Vec<_> =
                    keys.iter().map(|(name, text)| format!("{}:{text}", serde_json::Value::from(&**name))).collect();
                format!("k:{{{}}}", fields.join(","))
            }
        }
    }
}

/// Formats a path: `spec.containers[name=web].image`.
pub(super) fn show(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                if name.contains(['.', ' ', '[']) { text.extend(["[", name, "]"]) } else { text.push_str(name) }
            }
            Step::Item(keys) => {
                let keys: Vec<_> =
                    keys.iter().map(|(name, text)| format!("{name}={}", super::value::text(text))).collect();
                text.extend(["[", &keys.join(","), "]"]);
            }
        }
    }
    text
}

/// The managers of an object.
pub(super) struct Owners<'v> {
    entries: Vec<Entry<'v>>,
}

struct Entry<'v> {
    time: String,
    fields: &'v Map,
    /// The same by name, built on demand: most merges have no conflict.
    index: OnceCell<Index>,
}

/// The fields that a manager owns.
#[derive(Default)]
struct Index {
    below: HashMap<String, Index>,
}

impl<'v> Owners<'v> {
    /// Reads the managers of an object, if any.
    pub(super) fn of(object: &'v Value) -> Self {
        let managed = object.at(&["metadata", "managedFields"]).and_then(Value::as_list).unwrap_or_default();
        let entries = managed.iter().filter_map(|entry| {
            let time = entry.at(&["time"])?.as_text()?.into_owned();
            Some(Entry { time, fields: entry.at(&["fieldsV1"])?.as_map()?, index: OnceCell::new() })
        });
        Self { entries: entries.collect() }
    }

    /// Returns when a manager last wrote the field at `path`, or a part of it, as text that sorts by time.
    pub(super) fn written(&self, path: &[Step]) -> Option<&str> {
        let names: Vec<_> = path.iter().map(Step::owned).collect();
        let owns = |entry: &&Entry<'_>| entry.index.get_or_init(|| Index::of(entry.fields)).has(&names);
        self.entries.iter().filter(owns).map(|entry| &*entry.time).max()
    }
}

impl Index {
    fn of(fields: &Map) -> Self {
        let below = fields.iter().filter_map(|(name, below)| Some((name.into_owned(), Self::of(below.as_map()?))));
        Self { below: below.collect() }
    }

    fn has(&self, names: &[String]) -> bool {
        let mut at = self;
        for (depth, name) in names.iter().enumerate() {
            match at.below.get(name) {
                Some(below) => at = below,
                // A field owned without parts is owned with all of them.
                None => return depth > 0 && at.below.is_empty(),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_writer_of_a_field_is_found() {
        let (object, _) = Value::parse(
            br#"{"metadata":{"managedFields":[
                {"manager":"a","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}},"f:selector":{}}}},
                {"manager":"b","time":"2026-01-02T00:00:00Z","fieldsV1":{"f:spec":{"f:replicas":{}}}},
                {"manager":"c","fieldsV1":{"f:spec":{"f:replicas":{}}}}]}}"#,
        )
        .unwrap();
        let owners = Owners::of(&object);
        let field = |name: &str| Step::Field(name.into());
        let item = Step::Item(vec![("name".into(), "\"web\"".into())]);
        let image = [field("spec"), field("containers"), item, field("image")];
        assert_eq!(owners.written(&image), Some("2026-01-01T00:00:00Z"));
        assert_eq!(show(&image), "spec.containers[name=web].image");
        assert_eq!(owners.written(&image[..1]), Some("2026-01-02T00:00:00Z"));
        assert_eq!(owners.written(&[field("spec"), field("selector"), field("x")]), Some("2026-01-01T00:00:00Z"));
        assert_eq!(owners.written(&[field("spec"), field("paused")]), None);
        assert_eq!(owners.written(&[field("status")]), None);
    }
}

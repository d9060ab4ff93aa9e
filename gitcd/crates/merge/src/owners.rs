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

/// Longest path that is shown whole: a path is shown for each of perhaps very many conflicts.
const MAX_SHOWN_BYTES: usize = 1 << 10;

/// Formats a path: `spec.containers[name=web].image`; a very long one is cut off.
pub(super) fn show(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        if text.len() > MAX_SHOWN_BYTES {
            break;
        }
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
    if text.len() > MAX_SHOWN_BYTES {
        text.truncate(text.floor_char_boundary(MAX_SHOWN_BYTES));
        text.push('…');
    }
    text
}

/// The managers of an object.
pub(super) struct Owners<'v> {
    /// When each manager wrote, and its fields.
    entries: Vec<(String, &'v Map)>,
    /// The same by field, built on demand: most merges have no conflict.
    index: OnceCell<Index>,
}

/// The fields that managers own: all of them together, so that the number of managers does not count for a field.
#[derive(Default)]
struct Index {
    below: HashMap<String, Index>,
    /// When one of them last wrote it, or a part of it.
    latest: Option<String>,
    /// When one of them last wrote it that owns it without parts.
    whole: Option<String>,
}

impl<'v> Owners<'v> {
    /// Reads the managers of an object, if any.
    pub(super) fn of(object: &'v Value) -> Self {
        let managed = object.at(&["metadata", "managedFields"]).and_then(Value::as_list).unwrap_or_default();
        let entries = managed.iter().filter_map(|entry| {
            Some((entry.at(&["time"])?.as_text()?.into_owned(), entry.at(&["fieldsV1"])?.as_map()?))
        });
        Self { entries: entries.collect(), index: OnceCell::new() }
    }

    /// Returns when a manager last wrote the field at `path`, or a part of it, as text that sorts by time.
    pub(super) fn written(&self, path: &[Step]) -> Option<&str> {
        let index = self.index.get_or_init(|| {
            let mut index = Index::default();
            self.entries.iter().for_each(|(time, fields)| index.add(time, fields));
            index
        });
        let (mut at, mut whole) = (index, None);
        for (depth, step) in path.iter().enumerate() {
            if depth > 0 {
                // A field owned without parts is owned with all of them.
                whole = whole.max(at.whole.as_deref());
            }
            match at.below.get(&step.owned()) {
                Some(below) => at = below,
                None => return whole,
            }
        }
        whole.max(at.latest.as_deref())
    }
}

impl Index {
    /// Adds the fields of a manager.
    fn add(&mut self, time: &str, fields: &Map) {
        let raise = |latest: &mut Option<String>| {
            if latest.as_deref() < Some(time) {
                *latest = Some(time.to_owned());
            }
        };
        raise(&mut self.latest);
        let mut has_parts = false;
        for (name, below) in fields.iter() {
            if let Some(below) = below.as_map() {
                has_parts = true;
                self.below.entry(name.into_owned()).or_default().add(time, below);
            }
        }
        if !has_parts {
            raise(&mut self.whole);
        }
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

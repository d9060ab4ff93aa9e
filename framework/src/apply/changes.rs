//! The changes of a write, for readers.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::differences::{KEYS, is_key, same, within};
use super::marks::{APPLIED, APPLIED_BY};
use crate::{Kind, Object};

/// Longer values are cut.
const MOST_BYTES: usize = 60;
/// Maximum number of changes in the log.
const MOST_LINES: usize = 40;
/// Metadata that changes with every write, or that is no part of the desired state.
const BOOKKEEPING: [&str; 5] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];
/// A copy of the object, including secrets.
const COPY: &str = "kubectl.kubernetes.io/last-applied-configuration";
const HIDDEN: &str = "(hidden)";

/// A field that changes. Displayed, it is a line: `~ spec.replicas: 1 → 2`, `+ data.level: "3"`, `- data.old: "2"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Path of the field: `spec.template.spec.containers[app].image`.
    pub path: String,
    /// The old value as JSON, cut if it is long; `None` if the field was absent.
    pub before: Option<String>,
    /// The new value, likewise.
    pub after: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => write!(f, "~ {path}: {before} → {after}"),
            (None, Some(after)) => write!(f, "+ {path}: {after}"),
            (Some(before), None) => write!(f, "- {path}: {before}"),
            (None, None) => write!(f, "  {path}"),
        }
    }
}

/// Returns the fields in which an object differs before and after a write; all fields if there was none before. Leaves out
/// the status, and what changes with every write.
///
/// Shows the values of a Secret only in fields that identify it: its annotations may have copies of its data.
pub fn changes<K: Object + Serialize>(kind: &Kind<K>, before: Option<&K>, after: &K) -> Vec<Change> {
    changes_of(Hidden::of(kind, &[]), before, after)
}

/// What is not printed of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    Nothing,
    /// Of a Secret: all values except those that identify it.
    Values,
    /// Of a listed kind: the names of fields, too.
    Fields,
}

/// Metadata that shows which object it is, and its lifecycle.
const IDENTITY: [&str; 6] = ["name", "generateName", "namespace", "deletionTimestamp", "finalizers", "ownerReferences"];

impl Hidden {
    /// Returns what to hide of a kind. `kinds` hide their fields, too: `GROUP/KIND`, or the kind alone in the core group.
    pub(super) fn of<K: Object>(kind: &Kind<K>, kinds: &[String]) -> Self {
        let (name, group) = (kind.name(), kind.group());
        let is_listed = |listed: &String| match listed.rsplit_once('/') {
            Some((listed, kind)) => listed == group && kind == name,
            None => group.is_empty() && *listed == name,
        };
        if kinds.iter().any(is_listed) {
            Self::Fields
        } else if name == "Secret" && group.is_empty() {
            Self::Values
        } else {
            Self::Nothing
        }
    }

    /// Returns the part of a field's path that may be printed.
    pub(super) fn path(self, path: &str) -> &str {
        let end = path.find(['.', '[']).filter(|_| self == Self::Fields && !path.starts_with("metadata."));
        &path[..end.unwrap_or(path.len())]
    }

    fn shows(self, path: &str) -> bool {
        let is_identity = |rest: &str| IDENTITY.contains(&&rest[..rest.find(['.', '[']).unwrap_or(rest.len())]);
        match self {
            Self::Nothing => true,
            Self::Values if matches!(path, "type" | "immutable") => true,
            Self::Values | Self::Fields => path.strip_prefix("metadata.").is_some_and(is_identity),
        }
    }
}

/// [`changes`] of an object that may be partly hidden.
pub(super) fn changes_of<K: Object + Serialize>(hidden: Hidden, before: Option<&K>, after: &K) -> Vec<Change> {
    let [before, after] =
        [before, Some(after)].map(|object| fields(object.and_then(|it| serde_json::to_value(it).ok())));
    let mut found = Vec::new();
    for name in names(&before, &after) {
        compare(before.get(name), after.get(name), &mut name.clone(), hidden, &mut found);
    }
    if hidden == Hidden::Fields {
        for change in &mut found {
            change.path.truncate(hidden.path(&change.path).len());
        }
        found.dedup();
    }
    found
}

/// Formats changes for the log.
pub(super) fn lines(changes: &[Change]) -> Vec<String> {
    let mut lines: Vec<_> = changes.iter().take(MOST_LINES).map(ToString::to_string).collect();
    if let Some(more) = changes.len().checked_sub(MOST_LINES).filter(|more| *more > 0) {
        lines.push(format!("… and {more} more"));
    }
    lines
}

/// Returns the fields whose changes are reported.
fn fields(object: Option<Value>) -> Map<String, Value> {
    let Some(Value::Object(mut object)) = object else { return Map::new() };
    object.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind" | "status"));
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| !BOOKKEEPING.contains(&name.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| ![APPLIED, APPLIED_BY, COPY].contains(&name.as_str()));
        }
    }
    object
}

fn names<'a>(before: &'a Map<String, Value>, after: &'a Map<String, Value>) -> Vec<&'a String> {
    after.keys().chain(before.keys().filter(|name| !after.contains_key(*name))).collect()
}

fn compare(before: Option<&Value>, after: Option<&Value>, path: &mut String, hide: Hidden, found: &mut Vec<Change>) {
    let nothing = Map::new();
    match (before, after) {
        (None, None) => {}
        (Some(before), Some(after)) if same(before, after) => {}
        (Some(Value::Array(before)), Some(Value::Array(after))) => lists(before, after, path, hide, found),
        (None | Some(Value::Object(_)), None | Some(Value::Object(_))) => {
            let [before, after] = [before, after].map(|map| map.and_then(Value::as_object).unwrap_or(&nothing));
            for name in names(before, after) {
                within(path, &format!(".{name}"), |path| {
                    compare(before.get(name), after.get(name), path, hide, found);
                });
            }
        }
        (before, after) => {
            let show = |value: &Value| if hide.shows(path) { short(value) } else { HIDDEN.to_owned() };
            found.push(Change { path: path.clone(), before: before.map(show), after: after.map(show) });
        }
    }
}

fn lists(before: &[Value], after: &[Value], path: &mut String, hide: Hidden, found: &mut Vec<Change>) {
    let is_key = |key: &&str| [before, after].into_iter().all(|list| list.is_empty() || is_key(key, list));
    let Some(key) = KEYS.into_iter().find(is_key) else {
        for index in 0..before.len().max(after.len()) {
            within(path, &format!("[{index}]"), |path| {
                compare(before.get(index), after.get(index), path, hide, found);
            });
        }
        return;
    };
    let of = |list: &[Value], name: &str| list.iter().find(|element| element[key] == name).cloned();
    let named = |list: &[Value]| list.iter().filter_map(|element| element[key].as_str()).map(str::to_owned).collect();
    let (was, mut all): (Vec<String>, Vec<String>) = (named(before), named(after));
    all.extend(was.into_iter().filter(|name| of(after, name).is_none()));
    for name in all {
        within(path, &format!("[{name}]"), |path| {
            compare(of(before, &name).as_ref(), of(after, &name).as_ref(), path, hide, found);
        });
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= MOST_BYTES {
        return text;
    }
    let cut = text.floor_char_boundary(MOST_BYTES);
    format!("{}… ({} bytes)", &text[..cut], text.len())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;
    use crate::StaticKind;

    fn change_lines<K: StaticKind + Serialize + DeserializeOwned>(before: Option<Value>, after: Value) -> Vec<String> {
        let parse = |value| serde_json::from_value::<K>(value).unwrap();
        lines(&changes(&Kind::known(), before.map(parse).as_ref(), &parse(after)))
    }

    #[test]
    fn a_change_is_a_line_and_bookkeeping_is_none() {
        let pump = |version: &str, replicas: i32, containers: Value| {
            json!({
                "metadata": {"name": "pump", "resourceVersion": version, "annotations": {APPLIED: version}},
                "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": containers}}},
                "status": {"replicas": replicas}
            })
        };
        let before = pump("1", 1, json!([{"name": "gone"}, {"name": "app", "image": "a:1", "args": ["-v", "-x"]}]));
        let after =
            pump("2", 2, json!([{"name": "app", "image": "a:2", "args": ["-v"]}, {"name": "new", "image": "b"}]));
        let containers = "spec.template.spec.containers";
        assert_eq!(
            change_lines::<Deployment>(Some(before.clone()), after),
            [
                "~ spec.replicas: 1 → 2".to_owned(),
                format!("- {containers}[app].args[1]: \"-x\""),
                format!("~ {containers}[app].image: \"a:1\" → \"a:2\""),
                format!("+ {containers}[new].image: \"b\""),
                format!("+ {containers}[new].name: \"new\""),
                format!("- {containers}[gone].name: \"gone\""),
            ]
        );
        assert_eq!(change_lines::<Deployment>(Some(before.clone()), before), Vec::<String>::new());
    }

    #[test]
    fn what_was_not_there_is_all_new_and_long_texts_and_lists_of_changes_are_cut() {
        let map = json!({"metadata": {"name": "m"}, "data": {"level": "3", "text": "ä".repeat(50)}});
        let text = format!("+ data.text: \"{}… (102 bytes)", "ä".repeat(29));
        assert_eq!(change_lines::<ConfigMap>(None, map), ["+ data.level: \"3\"", &text, "+ metadata.name: \"m\""]);
        let many: Map<_, _> = (0..50).map(|index| (format!("k{index}"), "v".into())).collect();
        let shown = change_lines::<ConfigMap>(None, json!({"metadata": {}, "data": many}));
        assert_eq!((shown.len(), shown.last().unwrap().as_str()), (41, "… and 10 more"));
    }

    #[test]
    fn values_of_secrets_are_never_printed() {
        let secret = |value: &str, text: &str| {
            json!({
                "metadata": {"name": "s", "annotations": {COPY: format!("{{\"data\": \"{value}\"}}"), "own/copy": value}},
                "data": {"password": value, value: "a2V5"}, "stringData": {"plain": text}, "type": "Opaque"
            })
        };
        let all = change_lines::<Secret>(None, secret("c2VzYW1l", "open"));
        assert_eq!(
            all,
            [
                "+ data.c2VzYW1l: (hidden)",
                "+ data.password: (hidden)",
                "+ metadata.annotations.own/copy: (hidden)",
                "+ metadata.name: \"s\"",
                "+ stringData.plain: (hidden)",
                "+ type: \"Opaque\""
            ]
        );
        let changed = change_lines::<Secret>(Some(secret("YQ==", "a")), secret("Yg==", "b"));
        assert!(changed.contains(&"~ data.password: (hidden) → (hidden)".to_owned()), "{changed:?}");
        assert!(changed.contains(&"- data.YQ==: (hidden)".to_owned()), "{changed:?}");
        assert!(!changed.iter().any(|line| line.contains("\"a\"") || line.contains("\"b\"")), "{changed:?}");
    }

    #[test]
    fn kinds_that_are_listed_do_not_even_show_their_fields() {
        let map = |value: &str| {
            let map = json!({"metadata": {"name": "m", "labels": {"x": value}}, "data": {"a": value, value: "1"}});
            serde_json::from_value::<ConfigMap>(map).unwrap()
        };
        let kind = Kind::<ConfigMap>::known();
        let change_lines = |kinds: &[&str]| {
            let kinds: Vec<_> = kinds.iter().map(ToString::to_string).collect();
            lines(&changes_of(Hidden::of(&kind, &kinds), Some(&map("p1")), &map("p2")))
        };
        assert_eq!(change_lines(&["apps/ConfigMap"]).len(), 4);
        let hidden = change_lines(&["example.org/Vault", "ConfigMap"]);
        let labels = "~ metadata.labels.x: (hidden) → (hidden)";
        assert_eq!(hidden, ["~ data: (hidden) → (hidden)", "+ data: (hidden)", "- data: (hidden)", labels]);
    }
}

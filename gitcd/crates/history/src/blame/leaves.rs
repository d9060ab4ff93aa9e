//! The fields of an object, down to the values that a merge takes whole, and the lines of YAML that show them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::rc::Rc;

use gitcd_merge::schema::Node;
use gitcd_merge::secrecy::Exposure;
use gitcd_merge::value::{Map, Syntax, Value};
use gitcd_merge::{ItemId, item_ids};

use super::carry::{At, FieldStep, field_of_metadata};
use super::path::{FieldPath, Step};

/// A field that has no fields of its own for a merge.
#[derive(Clone, Debug)]
pub(super) struct Leaf<'v> {
    pub(super) path: FieldPath,
    /// Where the field is in this version.
    pub(super) at: At,
    pub(super) value: Cow<'v, Value>,
}

/// A line of YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The path of the field, the map or the list.
    pub path: FieldPath,
    /// The text before the value, indented: `  image:`, `- name:`, `-`.
    pub label: String,
    /// The index of the field whose value follows; `None` for the line of a map or a list.
    pub field: Option<usize>,
}

/// Returns the fields of an object in order, and its lines. A field whose parts must not be printed is one field.
pub(super) fn of<'v>(object: &'v Value, node: Option<Node<'_>>, exposure: Exposure) -> (Vec<Leaf<'v>>, Vec<Line>) {
    let mut leaves = Leaves { exposure, path: Vec::new(), at: Vec::new(), found: Vec::new(), lines: Vec::new() };
    match object {
        Value::Map(map) if !map.is_empty() => leaves.map(map, node, 0, String::new()),
        _ => leaves.leaf(object, String::new()),
    }
    (leaves.found, leaves.lines)
}

/// Returns the only field of a value that is not an object, and its line.
pub(super) fn opaque(bytes: &[u8]) -> (Vec<Leaf<'static>>, Vec<Line>) {
    let value = Value::string(&String::from_utf8_lossy(bytes));
    let line = Line { path: FieldPath::default(), label: String::new(), field: Some(0) };
    (vec![Leaf { path: FieldPath::default(), at: [].into(), value: Cow::Owned(value) }], vec![line])
}

/// Formats a value on one line of YAML.
pub fn on_one_line(value: &Value) -> String {
    let json = || String::from_utf8_lossy(&value.write(Syntax::Json)).into_owned();
    if value.as_text().is_none() {
        return json();
    }
    let yaml = String::from_utf8_lossy(&value.write(Syntax::Yaml)).trim_end_matches('\n').to_owned();
    if yaml.is_empty() || yaml.contains('\n') { json() } else { yaml }
}

struct Leaves<'v> {
    exposure: Exposure,
    path: Vec<Step>,
    at: Vec<FieldStep>,
    found: Vec<Leaf<'v>>,
    lines: Vec<Line>,
}

impl<'v> Leaves<'v> {
    fn map(&mut self, map: &'v Map, node: Option<Node<'_>>, indent: usize, mut lead: String) {
        for (name, value) in map.iter() {
            let label = on_one_line(&Value::string(&name));
            let label = format!("{}{label}:", std::mem::replace(&mut lead, " ".repeat(indent)));
            let below = node.and_then(|node| node.field(&name));
            self.path.push(Step::Name((&*name).into()));
            self.at.push(FieldStep::Name(Rc::from(&*name)));
            self.value(value, below, indent, label);
            self.path.pop();
            self.at.pop();
        }
    }

    /// Adds what follows the label of a field.
    fn value(&mut self, value: &'v Value, node: Option<Node<'_>>, indent: usize, label: String) {
        let is_atomic = node.is_some_and(|node| node.is_atomic()) || self.is_hidden_whole();
        match value {
            Value::Map(map) if !map.is_empty() && !is_atomic => {
                self.line(label, None);
                self.map(map, node, indent + 2, " ".repeat(indent + 2));
            }
            Value::List(items) if !items.is_empty() && !is_atomic => match self.ids(items, node) {
                Some(ids) => {
                    self.line(label, None);
                    self.list(items, ids, node, indent, " ".repeat(indent));
                }
                None => self.leaf(value, label),
            },
            _ => self.leaf(value, label),
        }
    }

    fn line(&mut self, label: String, field: Option<usize>) {
        self.lines.push(Line { path: FieldPath(self.path.clone()), label, field });
    }

    /// Returns whether not even the names of the parts of the current field may be printed. They have field names and values as
    /// text in `metadata.managedFields`.
    fn is_hidden_whole(&self) -> bool {
        match (self.exposure, &self.path[..]) {
            (Exposure::Open, _) => false,
            (_, [Step::Name(part), Step::Name(name)]) if **part == *"metadata" => **name == *"managedFields",
            (Exposure::Identity, [Step::Name(name)]) => **name != *"metadata",
            _ => false,
        }
    }

    /// Returns whether the values of the current field may be printed, which the names of list items contain.
    fn shows_items(&self) -> bool {
        self.exposure == Exposure::Open || FieldPath(self.path.clone()).is_shown(self.exposure)
    }

    fn ids(&self, items: &[Value], node: Option<Node<'_>>) -> Option<Vec<ItemId>> {
        item_ids([items, items], field_of_metadata(&self.at), node).map(|[ids, _]| ids)
    }

    fn list(&mut self, items: &'v [Value], ids: Vec<ItemId>, node: Option<Node<'_>>, indent: usize, mut lead: String) {
        // `[1,"1"]` has two different items with the same text.
        let mut texts = HashSet::new();
        let is_repeated = items.iter().filter_map(Value::as_text).any(|text| !texts.insert(text));
        for (index, (item, id)) in items.iter().zip(ids).enumerate() {
            let dash = format!("{}-", std::mem::replace(&mut lead, " ".repeat(indent)));
            let is_keyed = matches!(id, ItemId::Key(_));
            self.path.push(self.step(id, item, (index, is_repeated)));
            self.at.push(FieldStep::Index(index));
            let below = node.and_then(|node| node.items());
            match item {
                Value::Map(map) if is_keyed && !map.is_empty() && !below.is_some_and(|node| node.is_atomic()) => {
                    self.map(map, below, indent + 2, dash + " ");
                }
                // An item that is identified by its content is one value.
                _ => self.leaf(item, dash),
            }
            self.path.pop();
            self.at.pop();
        }
    }

    fn step(&self, id: ItemId, item: &Value, (index, is_repeated): (usize, bool)) -> Step {
        let plain = |text: &str| Value::Scalar(text.into()).as_text().map_or_else(|| text.to_owned(), Cow::into_owned);
        match id {
            _ if !self.shows_items() => Step::Index(index),
            ItemId::Key(keys) => Step::Keys(keys.into_iter().map(|(name, text)| (name, plain(&text))).collect()),
            ItemId::Content(..) => match item.as_text() {
                Some(text) if !is_repeated => Step::Element(text.into()),
                _ => Step::Index(index),
            },
        }
    }

    fn leaf(&mut self, value: &'v Value, label: String) {
        self.line(label, Some(self.found.len()));
        let path = FieldPath(self.path.clone());
        self.found.push(Leaf { path, at: self.at.as_slice().into(), value: Cow::Borrowed(value) });
    }
}

#[cfg(test)]
mod tests {
    use gitcd_merge::schema::Schemas;

    use super::*;

    fn shown(text: &str) -> (Vec<String>, String) {
        let object = Value::parse(text.as_bytes()).expect("it is an object").0;
        let schemas = Schemas::builtin();
        let named = |name: &str| object.at(&[name]).and_then(Value::as_text).unwrap_or_default().into_owned();
        let (leaves, lines) = of(&object, schemas.of(&named("apiVersion"), &named("kind")), Exposure::Open);
        for leaf in &leaves {
            let step = |value: &'_ Value, step: &FieldStep| match step {
                FieldStep::Name(name) => value.at(&[name]).cloned(),
                FieldStep::Index(at) => value.as_list().and_then(|items| items.get(*at)).cloned(),
            };
            let found = leaf.at.iter().try_fold(object.clone(), |value, at| step(&value, at));
            assert_eq!(found.as_ref(), Some(&*leaf.value), "{}", leaf.path);
        }
        let line = |line: &Line| match line.field {
            Some(field) => format!("{} {}\n", line.label, on_one_line(&leaves[field].value)),
            None => format!("{}\n", line.label),
        };
        (leaves.iter().map(|leaf| leaf.path.to_string()).collect(), lines.iter().map(line).collect())
    }

    #[test]
    fn the_lines_are_the_object_in_yaml_and_the_leaves_are_what_a_merge_takes_whole() {
        let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"a.b/c":"on","n":"1"},"finalizers":["x/y"],"annotations":{"text":"one\ntwo\n"}},
            "spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"web","command":["sh","-c"],"ports":[{"containerPort":80}],"env":[]},{"image":"i","name":"db"}]}}"#;
        let (paths, yaml) = shown(pod);
        assert_eq!(
            paths,
            [
                "apiVersion",
                "kind",
                "metadata.name",
                "metadata.labels[\"a.b/c\"]",
                "metadata.labels.n",
                "metadata.finalizers[x/y]",
                "metadata.annotations.text",
                "spec.nodeSelector",
                "spec.containers[name=web].name",
                "spec.containers[name=web].command",
                "spec.containers[name=web].ports[containerPort=80,protocol=TCP].containerPort",
                "spec.containers[name=web].env",
                "spec.containers[name=db].image",
                "spec.containers[name=db].name",
            ]
        );
        let read = Value::parse(yaml.as_bytes()).unwrap_or_else(|| panic!("{yaml}")).0;
        assert_eq!(read, Value::parse(pod.as_bytes()).unwrap().0, "{yaml}");
        assert!(
            yaml.contains(
                "\n  containers:\n  - name: web\n    command: [\"sh\",\"-c\"]\n    ports:\n    - containerPort: 80\n"
            ),
            "{yaml}"
        );
    }

    #[test]
    fn values_without_fields_are_one_line() {
        assert_eq!(shown("{}"), (vec![String::new()], " {}\n".into()));
        let repeated = r#"{"l":[{"name":"a","v":{"w":1}},{"name":"a","v":2}],"m":[[1],[2]],"e":{},"n":null,"s":""}"#;
        let (paths, yaml) = shown(repeated);
        assert_eq!(paths, ["l[0]", "l[1]", "m", "e", "n", "s"]);
        let set = r#"{"metadata":{"finalizers":[1,"1","x"]}}"#;
        let paths = ["metadata.finalizers[0]", "metadata.finalizers[1]", "metadata.finalizers[2]"];
        assert_eq!(shown(set).0, paths, "two items have the same text");
        assert_eq!(Value::parse(yaml.as_bytes()).unwrap().0, Value::parse(repeated.as_bytes()).unwrap().0, "{yaml}");
    }
}

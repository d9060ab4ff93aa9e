//! Edits of fields, and request bodies that make them.

use serde_json::{Map, Value, json};

/// A step from an object to one of its fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Field(String),
    /// The item of a list with these fields.
    Item(Vec<(String, Value)>),
    /// A scalar of a set.
    Element(String),
}

/// A change of a field.
#[derive(Clone, Debug)]
pub(crate) struct Edit {
    pub(crate) path: Vec<Step>,
    /// `None` removes the field.
    pub(crate) value: Option<Value>,
}

impl Edit {
    /// Parses a path: steps separated by spaces, items as `name=web` or `port=80,protocol=TCP`, elements of sets as `=a`.
    pub(crate) fn new(path: &str, value: Option<Value>) -> Self {
        let path = path.split(' ').map(|step| match step.split_once('=') {
            Some(("", element)) => Step::Element(element.to_owned()),
            Some(_) => Step::Item(
                step.split(',')
                    .map(|key| {
                        let (name, value) = key.split_once('=').expect("every key of an item has a value");
                        (name.to_owned(), value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number)))
                    })
                    .collect(),
            ),
            None => Step::Field(step.to_owned()),
        });
        Self { path: path.collect(), value }
    }

    /// Makes the edit. An object that cannot have the field stays unchanged.
    pub(crate) fn apply(&self, object: &mut Value) {
        apply(object, &self.path, self.value.as_ref());
    }

    /// Returns the value at the path.
    pub(crate) fn at<'o>(&self, object: &'o Value) -> Option<&'o Value> {
        self.path.iter().try_fold(object, |at, step| match step {
            Step::Field(name) => at.get(name),
            Step::Item(keys) => at.as_array()?.iter().find(|item| is_item(item, keys)),
            Step::Element(text) => at.as_array()?.iter().find(|item| *item == text),
        })
    }

    /// Returns a partial object with the edited field and the keys on the way to it; `None` for a removal.
    pub(crate) fn partial(&self) -> Option<Value> {
        let value = self.value.clone()?;
        Some(wrap(&self.path, Some(value)))
    }

    /// Returns a strategic merge patch.
    pub(crate) fn strategic(&self) -> Value {
        wrap(&self.path, self.value.clone())
    }
}

fn apply(at: &mut Value, path: &[Step], value: Option<&Value>) {
    let Some((step, rest)) = path.split_first() else {
        if let Some(value) = value {
            *at = value.clone();
        }
        return;
    };
    match step {
        Step::Field(name) => {
            if at.is_null() {
                *at = json!({});
            }
            let Some(map) = at.as_object_mut() else { return };
            match value {
                None if rest.is_empty() => drop(map.shift_remove(name)),
                None => {
                    if let Some(below) = map.get_mut(name) {
                        apply(below, rest, value);
                    }
                }
                Some(_) => apply(map.entry(name.clone()).or_insert(Value::Null), rest, value),
            }
        }
        Step::Item(keys) => {
            if at.is_null() {
                *at = json!([]);
            }
            let Some(items) = at.as_array_mut() else { return };
            let found = items.iter().position(|item| is_item(item, keys));
            match (found, value) {
                (Some(index), None) if rest.is_empty() => drop(items.remove(index)),
                (Some(index), Some(value)) if rest.is_empty() => items[index] = keyed(keys, value.clone()),
                (Some(index), _) => apply(&mut items[index], rest, value),
                (None, Some(_)) => {
                    let mut item = keyed(keys, json!({}));
                    if rest.is_empty() {
                        item = keyed(keys, value.cloned().unwrap_or_default());
                    } else {
                        apply(&mut item, rest, value);
                    }
                    items.push(item);
                }
                (None, None) => {}
            }
        }
        Step::Element(text) => {
            if at.is_null() {
                *at = json!([]);
            }
            let Some(items) = at.as_array_mut() else { return };
            let found = items.iter().position(|item| item == text);
            match (found, value) {
                (Some(index), None) => drop(items.remove(index)),
                (None, Some(_)) => items.push(json!(text)),
                _ => {}
            }
        }
    }
}

/// An absent key field counts as its default, if the oracle's kinds have one.
fn is_item(item: &Value, keys: &[(String, Value)]) -> bool {
    keys.iter().all(|(name, value)| item.get(name).map_or(name == "protocol" && value == "TCP", |found| found == value))
}

fn keyed(keys: &[(String, Value)], value: Value) -> Value {
    let mut item: Map<String, Value> = keys.iter().cloned().collect();
    if let Value::Object(value) = value {
        item.extend(value);
    }
    Value::Object(item)
}

fn wrap(path: &[Step], value: Option<Value>) -> Value {
    let Some((step, rest)) = path.split_first() else { return value.unwrap_or_default() };
    match step {
        // Removes an element: the directive's name contains that of the list.
        Step::Field(name) if value.is_none() && matches!(rest, [Step::Element(_)]) => {
            let [Step::Element(text)] = rest else { unreachable!("the pattern matches") };
            json!({ format!("$deleteFromPrimitiveList/{name}"): [text] })
        }
        Step::Field(name) => json!({ name: wrap(rest, value) }),
        Step::Item(keys) if rest.is_empty() => match value {
            Some(value) => json!([keyed(keys, value)]),
            None => json!([keyed(keys, json!({"$patch": "delete"}))]),
        },
        Step::Item(keys) => json!([keyed(keys, wrap(rest, value))]),
        Step::Element(text) => json!([text]),
    }
}

/// Merges partial objects. Items of lists are matched by one of `KEYS`.
pub(crate) fn join(into: &mut Value, part: Value) {
    const KEYS: [&str; 8] = ["name", "type", "uid", "key", "port", "containerPort", "ip", "mountPath"];
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            for (name, value) in part {
                match into.get_mut(&name) {
                    Some(found) => join(found, value),
                    None => drop(into.insert(name, value)),
                }
            }
        }
        (Value::Array(into), Value::Array(part)) => {
            for item in part {
                let same = into.iter_mut().find(|found| {
                    **found == item
                        || KEYS.iter().any(|key| found.get(key).is_some() && found.get(key) == item.get(key))
                });
                match same {
                    Some(found) => join(found, item),
                    None => into.push(item),
                }
            }
        }
        (into, part) => *into = part,
    }
}

/// Returns a JSON merge patch from one object to another.
pub(crate) fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let mut patch = Map::new();
    for (name, value) in to {
        match from.get(name) {
            Some(before) if before == value => {}
            Some(before) => drop(patch.insert(name.clone(), merge_patch(before, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    Value::Object(patch)
}

/// Returns a JSON patch (RFC 6902) from one object to another.
pub(crate) fn json_patch(from: &Value, to: &Value) -> Vec<Value> {
    let mut patch = Vec::new();
    collect(from, to, "", &mut patch);
    patch
}

fn collect(from: &Value, to: &Value, path: &str, patch: &mut Vec<Value>) {
    if from == to {
        return;
    }
    let (Value::Object(before), Value::Object(after)) = (from, to) else {
        patch.push(json!({"op": "replace", "path": path, "value": to}));
        return;
    };
    let below = |name: &str| format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
    for (name, value) in after {
        match before.get(name) {
            Some(found) => collect(found, value, &below(name), patch),
            None => patch.push(json!({"op": "add", "path": below(name), "value": value})),
        }
    }
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.push(json!({"op": "remove", "path": below(name)}));
    }
}

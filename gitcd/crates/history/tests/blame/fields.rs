//! Random objects of several kinds, their edits, and their fields, without the code of the merge.

use std::collections::BTreeMap;

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use serde_json::{Value, json};

/// The keys of a random graph, with their kinds.
pub(crate) const KEYS: [&str; 4] =
    ["/registry/pods/n/a", "/registry/configmaps/n/b", "/registry/example.org/things/n/c", "/registry/masterleases/d"];

/// Returns a new value of a key; `number` makes its identity.
pub(crate) fn created(random: &mut StdRng, key: &str, number: usize) -> Vec<u8> {
    let name = key.rsplit('/').next().expect("a key has a name");
    let metadata = json!({"name": name, "namespace": "n", "uid": format!("uid-{number}"), "generation": 1});
    let mut object = match key {
        "/registry/pods/n/a" => {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "a", "image": "0"}]}})
        }
        "/registry/configmaps/n/b" => {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "0"}})
        }
        "/registry/example.org/things/n/c" => {
            json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": metadata, "spec": {"n": 0, "items": [{"name": "a", "v": 0}]}})
        }
        _ => return format!("text {}", random.random_range(0..3)).into_bytes(),
    };
    edit_object(random, key, &mut object);
    written(&object)
}

/// Returns an edited value.
pub(crate) fn edited(random: &mut StdRng, key: &str, value: &[u8]) -> Vec<u8> {
    let Ok(mut object) = serde_json::from_slice::<Value>(value) else {
        return format!("text {}", random.random_range(0..3)).into_bytes();
    };
    for _ in 0..random.random_range(1..=3) {
        edit_object(random, key, &mut object);
    }
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    object["metadata"]["generation"] = json!(generation + 1);
    written(&object)
}

fn written(object: &Value) -> Vec<u8> {
    (object.to_string() + "\n").into_bytes()
}

fn edit_object(random: &mut StdRng, key: &str, object: &mut Value) {
    let value = random.random_range(0..3).to_string();
    let name = *["a", "b", "c.d"].choose(random).expect("it is not empty");
    let spec = |object: &mut Value| object["spec"].take();
    match (key, random.random_range(0..7)) {
        (_, 0) => set_or_remove(random, &mut object["metadata"], "labels", name, json!(value)),
        ("/registry/pods/n/a", 1) => toggle(random, &mut object["metadata"], "finalizers"),
        ("/registry/pods/n/a", 2) => object["spec"]["nodeSelector"] = json!({"zone": value, name: "x"}),
        ("/registry/pods/n/a", 3) => object["spec"]["tolerations"] = json!([{"key": value}, {"key": name}]),
        ("/registry/pods/n/a", _) => {
            let mut taken = spec(object);
            items(random, &mut taken, "containers", |random, item| match random.random_range(0..3) {
                0 => item["image"] = json!(value),
                1 => item["command"] = json!([value, "x"]),
                _ => items(random, item, "env", |_, item| item["value"] = json!(value)),
            });
            object["spec"] = taken;
        }
        ("/registry/configmaps/n/b", _) => set_or_remove(random, object, "data", name, json!(value)),
        (_, 1) => object["spec"]["list"] = json!([value, name]),
        (_, 2 | 3) => object["spec"]["n"] = json!(random.random_range(0..3)),
        _ => {
            let mut taken = spec(object);
            items(random, &mut taken, "items", |_, item| item["v"] = json!(value));
            object["spec"] = taken;
        }
    }
}

fn set_or_remove(random: &mut StdRng, object: &mut Value, map: &str, name: &str, value: Value) {
    let map = object.as_object_mut().expect("it is an object").entry(map).or_insert_with(|| json!({}));
    let map = map.as_object_mut().expect("it is a map");
    if random.random_bool(0.25) {
        map.remove(name);
    } else {
        map.insert(name.to_owned(), value);
    }
}

fn toggle(random: &mut StdRng, metadata: &mut Value, list: &str) {
    let item = json!(*["x/a", "x/b", "x/c"].choose(random).expect("it is not empty"));
    let list = metadata.as_object_mut().expect("it is an object").entry(list).or_insert_with(|| json!([]));
    let list = list.as_array_mut().expect("it is a list");
    match list.iter().position(|found| *found == item) {
        Some(at) => drop(list.remove(at)),
        None => list.insert(random.random_range(0..=list.len()), item),
    }
}

/// Adds, removes, moves or edits an item of a list with names.
fn items(random: &mut StdRng, object: &mut Value, list: &str, edit: impl FnOnce(&mut StdRng, &mut Value)) {
    let name = *["a", "b", "c"].choose(random).expect("it is not empty");
    let list = object.as_object_mut().expect("it is an object").entry(list).or_insert_with(|| json!([]));
    let list = list.as_array_mut().expect("it is a list");
    let found = list.iter().position(|item| item["name"] == name);
    match (found, random.random_range(0..8)) {
        (Some(at), 0) => drop(list.remove(at)),
        (Some(_), 1) => list.shuffle(random),
        (Some(at), _) => edit(random, &mut list[at]),
        (None, _) => list.insert(random.random_range(0..=list.len()), json!({"name": name})),
    }
}

/// The fields of a value by path.
pub(crate) type Fields = BTreeMap<String, Value>;

/// Returns the identity and the fields of a value.
pub(crate) fn of(value: &[u8]) -> (Option<String>, Fields) {
    let mut fields = Fields::new();
    let Ok(mut object) = serde_json::from_slice::<Value>(value) else {
        fields.insert(String::new(), json!(String::from_utf8_lossy(value)));
        return (None, fields);
    };
    // Empty fields of metadata are absent.
    let metadata = object["metadata"].as_object_mut().expect("objects have metadata");
    metadata.retain(|_, value| !matches!(value, Value::Object(map) if map.is_empty()) && *value != json!([]));
    let uid = object["metadata"]["uid"].as_str().map(ToOwned::to_owned);
    flatten("", &object, &mut fields);
    (uid, fields)
}

fn flatten(path: &str, value: &Value, fields: &mut Fields) {
    let last = path.rsplit('.').next().unwrap_or_default();
    let is_atomic = matches!(last, "nodeSelector" | "tolerations" | "command" | "list");
    match value {
        Value::Object(map) if !map.is_empty() && !is_atomic => {
            for (name, value) in map {
                let path = match (path, name.contains('.')) {
                    ("", _) => name.clone(),
                    (path, true) => format!("{path}[\"{name}\"]"),
                    (path, false) => format!("{path}.{name}"),
                };
                flatten(&path, value, fields);
            }
        }
        Value::Array(items) if !items.is_empty() && path == "metadata.finalizers" => {
            for item in items {
                fields.insert(format!("{path}[{}]", item.as_str().expect("it is a string")), item.clone());
            }
        }
        Value::Array(items) if !items.is_empty() && !is_atomic => {
            for item in items {
                let name = item["name"].as_str().expect("items have names");
                flatten(&format!("{path}[name={name}]"), item, fields);
            }
        }
        value => drop(fields.insert(path.to_owned(), value.clone())),
    }
}

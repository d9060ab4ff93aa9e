//! Secrets: `stringData` is a way to write `data`, but not a field of stored objects.
//!
//! Source: `pkg/apis/core/v1/conversion.go` (`Convert_v1_Secret_To_core_Secret`): `stringData` overwrites `data`.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::value::{Map, Value};

/// Returns a Secret with its `stringData` moved to `data`; any other object unchanged.
///
/// So a file on one branch and the object that kube-apiserver wrote on another have the same fields.
pub(super) fn without_string_data(object: Value) -> Value {
    let text = |name: &str| object.at(&[name]).and_then(Value::as_text).unwrap_or_default();
    let Some(Value::Map(given)) = object.at(&["stringData"]) else { return object };
    let are_texts = given.iter().all(|(_, value)| matches!(value, Value::Scalar(text) if text.starts_with('"')));
    if text("kind") != "Secret" || text("apiVersion") != "v1" || !are_texts {
        return object;
    }
    let mut data = match object.at(&["data"]) {
        Some(Value::Map(data)) => data.clone(),
        None => Map::default(),
        Some(Value::Scalar(text)) if &**text == "null" => Map::default(),
        Some(_) => return object,
    };
    for (name, value) in given.iter() {
        let value = value.as_text().unwrap_or_default();
        data.set(&name, Value::string(&BASE64_STANDARD.encode(value.as_bytes())));
    }
    let Value::Map(mut map) = object else { return object };
    map.remove("stringData");
    map.set("data", Value::Map(data));
    Value::Map(map)
}

//! Checks structural schemas, with kube-apiserver's messages. Covers the keywords that our CRDs use.

use regex::Regex;
use serde_json::Value;

use super::spelling;

/// Checks a value and all below it.
pub(crate) fn check(path: &str, value: &Value, schema: &Value, add: &mut impl FnMut(&str, String)) {
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_string() && !value.is_i64() {
            add(path, format!("Invalid value: {}: must be of type integer or string", named(value)));
        }
        return;
    }
    if let Some(wanted) = schema["type"].as_str()
        && !is(value, wanted)
    {
        let found = named(value);
        return add(path, format!("Invalid value: {found:?}: {path} in body must be of type {wanted}: {found:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        let shown =
            |value: &Value| format!("\"{}\"", value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned));
        let allowed: Vec<_> = allowed.iter().map(shown).collect();
        add(path, format!("Unsupported value: {}: supported values: {}", shown(value), allowed.join(", ")));
    }
    match value {
        Value::String(text) => string(path, text, schema, add),
        Value::Number(number) => {
            if let (Some(number), Some(least)) = (number.as_f64(), schema["minimum"].as_f64())
                && number < least
            {
                add(
                    path,
                    format!("Invalid value: {number}: {path} in body should be greater than or equal to {least}"),
                );
            }
            if let (Some(number), Some(most)) = (number.as_f64(), schema["maximum"].as_f64())
                && number > most
            {
                add(path, format!("Invalid value: {number}: {path} in body should be less than or equal to {most}"));
            }
        }
        Value::Array(items) => {
            if let Some(most) = schema["maxItems"].as_u64()
                && items.len() as u64 > most
            {
                add(path, format!("Too many: {}: must have at most {most} items", items.len()));
            }
            for (at, item) in items.iter().enumerate() {
                check(&format!("{path}[{at}]"), item, &schema["items"], add);
            }
        }
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !fields.contains_key(name) {
                    add(&format!("{path}.{name}"), "Required value".to_owned());
                }
            }
            let is_embedded = schema["x-kubernetes-embedded-resource"] == true;
            for (name, field) in fields {
                // Every object has these, and kube-apiserver checks them without the schema.
                if is_embedded && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let path = format!("{path}.{name}");
                if let Some(below) = schema["properties"].get(name) {
                    check(&path, field, below, add);
                } else if let Some(below) = schema.get("additionalProperties").filter(|below| below.is_object()) {
                    check(&path, field, below, add);
                } else if let Some(known) = schema["properties"].as_object()
                    && schema["x-kubernetes-preserve-unknown-fields"] != true
                {
                    add(&path, spelling::unknown(name, known.keys().map(String::as_str)));
                }
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

fn string(path: &str, text: &str, schema: &Value, add: &mut impl FnMut(&str, String)) {
    let length = text.chars().count() as u64;
    if let Some(least) = schema["minLength"].as_u64()
        && length < least
    {
        add(path, format!("Invalid value: {text:?}: {path} in body should be at least {least} chars long"));
    }
    if let Some(most) = schema["maxLength"].as_u64()
        && length > most
    {
        add(path, format!("Too long: may not be more than {most} bytes"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        // Go's syntax has parts that this crate's has not: such a pattern is not checked.
        && Regex::new(pattern).is_ok_and(|regex| !regex.is_match(text))
    {
        add(path, format!("Invalid value: {text:?}: {path} in body should match '{pattern}'"));
    }
}

fn is(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn named(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

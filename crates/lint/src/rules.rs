//! Checks the CEL rules of a schema.

use cel::{Context, Program, Value as CelValue};
use serde_json::Value;

/// Checks the rules at a path and below. Transition rules (`oldSelf`) do not apply to a single object.
pub(crate) fn check(path: &str, value: &Value, schema: &Value, add: &mut impl FnMut(&str, String)) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let (Some(text), message) = (rule["rule"].as_str(), rule["message"].as_str()) else { continue };
        if text.contains("oldSelf") {
            continue;
        }
        if holds(text, value) == Some(false) {
            add(path, message.map_or_else(|| format!("failed rule: {text}"), ToOwned::to_owned));
        }
    }
    if let Some(fields) = value.as_object() {
        for (name, field) in fields {
            let below = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
            check(&format!("{path}.{name}"), field, below, add);
        }
    }
    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&format!("{path}[{at}]"), item, &schema["items"], add);
    }
}

/// Whether a rule holds; `None` if it cannot be evaluated, in which case the schema check reports why.
fn holds(rule: &str, value: &Value) -> Option<bool> {
    let program = Program::compile(rule).ok()?;
    let mut context = Context::default();
    context.add_variable("self", value.clone()).ok()?;
    match program.execute(&context) {
        Ok(CelValue::Bool(holds)) => Some(holds),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;
    use serde_json::json;
    use trishanku_api::{AutomatedMerge, GitHubRepository, TrishankuHeaven};

    use super::*;

    #[test]
    fn every_rule_of_the_definitions_is_understood() {
        fn look(schema: &Value, count: &mut usize) {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let text = rule["rule"].as_str().unwrap();
                assert!(Program::compile(text).is_ok(), "{text}");
                *count += 1;
            }
            match schema {
                Value::Object(fields) => fields.values().for_each(|below| look(below, count)),
                Value::Array(items) => items.iter().for_each(|below| look(below, count)),
                _ => {}
            }
        }
        let mut count = 0;
        for definition in [TrishankuHeaven::crd(), AutomatedMerge::crd(), GitHubRepository::crd()] {
            look(&serde_json::to_value(definition).unwrap(), &mut count);
        }
        assert!(count >= 10, "{count}");
        assert_eq!(holds("has(self.a) && self.a.all(x, x.matches('^b+$'))", &json!({"a": ["b", "bb"]})), Some(true));
        assert_eq!(holds("self.a > 1", &json!({"a": 1})), Some(false));
    }
}

//! Templates as JSON, with fields that the types do not know.
//!
//! The typed injection works on the known fields, and its changes are then made in the JSON. It only adds, and keeps the
//! order of what exists, so the elements of a list before and after are matched by name.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value};

use super::Injector;
use super::problem::InjectError;

/// Why nothing was injected into a JSON template.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The JSON is not a pod template.
    #[error("not a pod template: {0}")]
    Template(#[source] serde_json::Error),
    /// As in a typed template.
    #[error(transparent)]
    Inject(#[from] InjectError),
}

/// Injects into a JSON template. Fields that this program does not know, since they belong to a newer Kubernetes, stay where
/// they are; so does everything else that the injection does not extend.
///
/// ```
/// use serde_json::json;
/// use trishanku_framework::inject::{JsonError, inject_json};
///
/// let users = json!({"spec": {"containers": [{"name": "app", "image": "app:1", "ofTomorrow": {"a": 1}}]}});
/// let template = inject_json(&users, |injector| injector.with(|pod| pod.container("proxy", "proxy:1").add()))?;
/// assert_eq!(template["spec"]["containers"][0], users["spec"]["containers"][0]);
/// assert_eq!(template["spec"]["containers"][1]["name"], "proxy");
/// # Ok::<(), JsonError>(())
/// ```
///
/// # Errors
/// [`JsonError`].
pub fn inject_json(template: &Value, inject: impl FnOnce(Injector) -> Injector) -> Result<Value, JsonError> {
    let typed: PodTemplateSpec = serde_json::from_value(template.clone()).map_err(JsonError::Template)?;
    let before = written(&typed);
    let after = written(&inject(Injector::new(typed)).finish()?);
    Ok(changed(template, &before, after))
}

fn written(template: &PodTemplateSpec) -> Value {
    serde_json::to_value(template).expect("Kubernetes' types can be encoded as JSON")
}

/// Returns `original`, whose known fields are `before`, with the changes from `before` to `after`.
fn changed(original: &Value, before: &Value, after: Value) -> Value {
    if *before == after {
        return original.clone();
    }
    match (original, before, after) {
        (Value::Object(original), Value::Object(before), Value::Object(after)) => {
            Value::Object(changed_object(original, before, after))
        }
        (Value::Array(original), Value::Array(before), Value::Array(after)) if original.len() == before.len() => {
            Value::Array(changed_list(original, before, after))
        }
        (_, _, after) => after,
    }
}

fn changed_object(
    original: &Map<String, Value>,
    before: &Map<String, Value>,
    after: Map<String, Value>,
) -> Map<String, Value> {
    let mut result = original.clone();
    for (field, after) in after {
        let value = match (original.get(&field), before.get(&field)) {
            (Some(original), Some(before)) => changed(original, before, after),
            // Some types encode empty fields.
            (None, Some(before)) if *before == after => continue,
            _ => after,
        };
        result.insert(field, value);
    }
    result
}

fn changed_list(original: &[Value], before: &[Value], after: Vec<Value>) -> Vec<Value> {
    let mut there = original.iter().zip(before).peekable();
    let changed = after.into_iter().map(|after| match there.next_if(|(_, before)| is_same(before, &after)) {
        Some((original, before)) => changed(original, before, after),
        None => after,
    });
    changed.collect()
}

/// Returns whether both are the same element of a list: containers, volumes and variables have names, mounts have paths.
fn is_same(before: &Value, after: &Value) -> bool {
    let called = |value: &Value| {
        let field = |field: &str| value.get(field).and_then(Value::as_str).map(ToOwned::to_owned);
        field("mountPath").or_else(|| field("name"))
    };
    match (called(before), called(after)) {
        (Some(before), Some(after)) => before == after,
        _ => before == after,
    }
}

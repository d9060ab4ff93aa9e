//! Reviews of objects.

use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Bytes;
use axum::response::Response;
use axum::routing::post;
use futures::FutureExt as _;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use kube::core::response::{StatusCause, StatusDetails};
use serde::Serialize;
use serde_json::{Map, Value};

use super::body;
use crate::error::chain;
use crate::{Key, ScopeKind, StaticKind};

/// What the apiserver asks about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Admission<K> {
    /// What is done.
    pub operation: Operation,
    /// The object as it is to be; of a deletion, the object that is deleted.
    pub object: K,
    /// The object as it is, in an update, if it matches its type.
    pub old: Option<K>,
    /// The subresource, if one is written: [`Hook::subresources`](super::Hook::subresources).
    pub subresource: Option<String>,
    /// The object's key. The name is empty if the apiserver generates it.
    pub key: Key,
    /// Who asks.
    pub user: UserInfo,
    /// Nothing is stored, whatever the answer.
    pub dry_run: bool,
}

/// Why something is not admitted: the user sees the message, and clients the reason and the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    message: String,
    code: u16,
    causes: Vec<StatusCause>,
}

/// What is wrong with a field, in the words of kube-apiserver's own validation (`CauseType` of k8s.io/apimachinery).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldProblem {
    /// It is missing.
    Required,
    /// It has a wrong value.
    Invalid,
    /// Another item of the list has its value.
    Duplicate,
    /// It must not be set here.
    Forbidden,
}

impl FieldProblem {
    fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
        }
    }
}

impl Denied {
    /// The user may not do that (403).
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 403, causes: Vec::new() }
    }

    /// The object is not as it must be (422).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 422, causes: Vec::new() }
    }

    /// It cannot be decided now (500); clients may try again.
    pub fn error(error: &dyn std::error::Error) -> Self {
        Self { message: chain(error), code: 500, causes: Vec::new() }
    }

    /// Names a field of the object that is wrong, such as `spec.containers[1].ports[0].containerPort`. May be called several times.
    ///
    /// The fields become `details.causes` of the response. kubectl then prints these instead of the message, each as the field and
    /// its message, so `message` must say by itself what is wrong, and how to fix it.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>, problem: FieldProblem, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        self.causes.push(StatusCause { reason: problem.reason().to_owned(), message, field });
        self
    }

    /// Returns the reason of this code in Kubernetes' statuses.
    fn reason(&self) -> &'static str {
        match self.code {
            403 => "Forbidden",
            422 => "Invalid",
            _ => "InternalError",
        }
    }

    /// Puts it into the response to a review of `object`.
    fn answer(self, response: AdmissionResponse, object: StatusDetails) -> AdmissionResponse {
        let reason = self.reason().to_owned();
        let mut denied = response.deny(self.message);
        denied.result.code = self.code;
        denied.result.reason = reason;
        // kubectl leaves out the message if there are details.
        denied.result.details = (!self.causes.is_empty()).then_some(StatusDetails { causes: self.causes, ..object });
        denied
    }
}

pub(super) fn validating<K, F, Fut>(path: &str, check: F) -> Router
where
    K: StaticKind,
    F: Fn(Admission<K>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Denied>> + Send,
{
    let answer =
        |body: Bytes| async move { reviewed(&body, |asked| async move { check(asked).await.map(|()| None) }).await };
    Router::new().route(path, post(answer))
}

pub(super) fn mutating<K, F, Fut>(path: &str, change: F) -> Router
where
    K: StaticKind,
    F: Fn(Admission<K>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<K, Denied>> + Send,
{
    let answer = |body: Bytes| async move {
        reviewed(&body, |asked: Admission<K>| async move {
            let before = value(&asked.object)?;
            Ok(Some((before, value(&change(asked).await?)?)))
        })
        .await
    };
    Router::new().route(path, post(answer))
}

fn value(object: &impl Serialize) -> Result<Value, Denied> {
    serde_json::to_value(object).map_err(|error| Denied::error(&error))
}

/// Answers a review by what `decide` returns: the object before and after, as its type encodes it.
async fn reviewed<K, Fut>(body: &[u8], decide: impl FnOnce(Admission<K>) -> Fut) -> Response
where
    K: StaticKind,
    Fut: Future<Output = Result<Option<(Value, Value)>, Denied>>,
{
    let review: AdmissionReview<DynamicObject> = match body::read(body) {
        Ok(review) => review,
        Err(problem) => return body::refuse(&problem),
    };
    let Ok(request) = TryInto::<AdmissionRequest<DynamicObject>>::try_into(review) else {
        return body::refuse("the review has no request");
    };
    let response = AdmissionResponse::from(&request);
    let object = StatusDetails {
        name: request.name.clone(),
        group: request.kind.group.clone(),
        kind: request.kind.kind.clone(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    };
    let received = request.object.as_ref().and_then(|object| serde_json::to_value(object).ok()).unwrap_or_default();
    // That is no answer, so the policy of the hook decides.
    let asked = match admission(request) {
        Ok(asked) => asked,
        Err(problem) => return body::fail(&problem),
    };
    let Ok(decided) = AssertUnwindSafe(decide(asked)).catch_unwind().await else {
        return body::fail("the hook panicked");
    };
    let response = match decided {
        Ok(None) => response,
        Ok(Some((before, after))) => {
            let patch = json_patch::diff(&received, &overlay(&received, &before, after));
            match (patch.0.is_empty(), response) {
                (true, response) => response,
                (false, response) => match response.with_patch(patch) {
                    Ok(response) => response,
                    Err(error) => return body::fail(&error.to_string()),
                },
            }
        }
        Err(denied) => denied.answer(response, object),
    };
    body::json(&response.into_review())
}

fn admission<K: StaticKind>(request: AdmissionRequest<DynamicObject>) -> Result<Admission<K>, String> {
    let typed = |object: DynamicObject| {
        let typed = serde_json::to_value(&object).and_then(serde_json::from_value);
        typed.map_err(|error| format!("the object does not match its type: {error}"))
    };
    let (object, old) = match (request.object, request.old_object) {
        (Some(object), old) => (object, old),
        (None, Some(deleted)) => (deleted, None),
        (None, None) => return Err("the review has no object".to_owned()),
    };
    let key = match &request.namespace {
        // Of a Namespace, it is the name.
        Some(namespace) if <K::Scope as ScopeKind>::NAMESPACED => Key::namespaced(namespace, &request.name),
        _ => Key::cluster(&request.name),
    };
    Ok(Admission {
        operation: request.operation,
        object: typed(object)?,
        // An update may be what makes it match its type again.
        old: old.and_then(|old| typed(old).ok()),
        subresource: request.sub_resource.filter(|name| !name.is_empty()),
        key,
        user: request.user_info,
        dry_run: request.dry_run,
    })
}

/// Puts the change from `before` to `after`, which a type encodes, into the object that was received: what the type does not know
/// stays.
fn overlay(received: &Value, before: &Value, after: Value) -> Value {
    if *before == after {
        return received.clone();
    }
    match (received, before, after) {
        (Value::Object(received), Value::Object(before), Value::Object(after)) => {
            let is_removed = |field: &String| before.contains_key(field) && !after.contains_key(field);
            let kept = received.iter().filter(|(field, _)| !is_removed(field));
            let mut all: Map<_, _> = kept.map(|(field, value)| (field.clone(), value.clone())).collect();
            for (field, value) in after {
                let value = match (received.get(&field), before.get(&field)) {
                    (Some(received), Some(before)) => overlay(received, before, value),
                    // What the type adds by itself, such as a default, is no change.
                    (None, Some(before)) if *before == value => continue,
                    _ => value,
                };
                all.insert(field, value);
            }
            Value::Object(all)
        }
        (Value::Array(received), Value::Array(before), Value::Array(after)) if received.len() == before.len() => {
            let mut is_free = vec![true; before.len()];
            let items = after.into_iter().map(|item| {
                let equal = (0..before.len()).find(|&index| is_free[index] && before[index] == item);
                let named = || {
                    let name = item.get("name")?;
                    (0..before.len()).find(|&index| is_free[index] && before[index].get("name") == Some(name))
                };
                match equal.or_else(named) {
                    Some(index) => {
                        is_free[index] = false;
                        overlay(&received[index], &before[index], item)
                    }
                    None => item,
                }
            });
            Value::Array(items.collect())
        }
        (_, _, after) => after,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_type_does_not_know_stays_also_in_items_that_move() {
        let received = json!({
            "new": 1, "containers": [{"name": "a", "image": "x", "new": 2}, {"name": "b", "new": 3}], "plain": ["p", "q"],
        });
        // The type has a default that was not sent.
        let before =
            json!({"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "plain": ["p", "q"], "default": 0});
        let after = json!({
            "containers": [{"name": "sidecar"}, {"name": "a", "image": "y"}, {"name": "b"}], "plain": ["q"], "default": 0,
        });
        let expected = json!({
            "new": 1, "plain": ["q"],
            "containers": [{"name": "sidecar"}, {"name": "a", "image": "y", "new": 2}, {"name": "b", "new": 3}],
        });
        assert_eq!(overlay(&received, &before, after), expected);
        assert_eq!(overlay(&received, &before, before.clone()), received);
        let without = json!({"containers": [], "plain": ["p", "q"], "default": 5});
        assert_eq!(
            overlay(&received, &before, without),
            json!({"new": 1, "containers": [], "plain": ["p", "q"], "default": 5})
        );
    }
}

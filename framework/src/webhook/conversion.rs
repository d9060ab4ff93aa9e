//! Conversion of objects between the versions of a CRD.

use std::panic::{AssertUnwindSafe, catch_unwind};

use axum::Router;
use axum::body::Bytes;
use axum::response::Response;
use axum::routing::post;
use kube::core::Status;
use kube::core::conversion::{ConversionRequest, ConversionResponse};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::body;

/// An object that is to have another version.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Conversion {
    /// The object.
    pub object: Value,
    /// The version that it has: `example.org/v1`.
    pub from: String,
    /// The version that it is to have.
    pub to: String,
}

impl Conversion {
    /// Converts the object from type `A` to type `B` by `convert`, which need not set the version.
    ///
    /// # Errors
    /// The object does not match `A`.
    pub fn between<A: DeserializeOwned, B: Serialize>(self, convert: impl FnOnce(A) -> B) -> Result<Value, String> {
        let object = serde_json::from_value(self.object).map_err(|error| error.to_string())?;
        serde_json::to_value(convert(object)).map_err(|error| error.to_string())
    }
}

pub(super) fn converting(
    path: &str,
    convert: impl Fn(Conversion) -> Result<Value, String> + Clone + Send + Sync + 'static,
) -> Router {
    let answer = |body: Bytes| async move {
        let converted = catch_unwind(AssertUnwindSafe(|| converted(&body, &convert)));
        converted.unwrap_or_else(|_| body::fail("the conversion panicked"))
    };
    Router::new().route(path, post(answer))
}

fn converted(body: &[u8], convert: &dyn Fn(Conversion) -> Result<Value, String>) -> Response {
    let review = match body::read(body) {
        Ok(review) => review,
        Err(problem) => return body::refuse(&problem),
    };
    let Ok(request) = ConversionRequest::from_review(review) else {
        return body::refuse("the review has no request");
    };
    let to = request.desired_api_version.clone();
    let objects: Result<Vec<_>, _> = request.objects.iter().cloned().map(|object| one(object, &to, convert)).collect();
    let response = ConversionResponse::for_request(request);
    let response = match objects {
        Ok(objects) => response.success(objects),
        Err(message) => response.failure(Status::failure(&message, "ConversionFailed")),
    };
    body::json(&response.into_review())
}

/// Converts an object. Its metadata stays as it is, as the apiserver requires, except labels and annotations.
fn one(object: Value, to: &str, convert: &dyn Fn(Conversion) -> Result<Value, String>) -> Result<Value, String> {
    let from = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let (kind, mut metadata) = (object["kind"].clone(), object["metadata"].clone());
    let named = format!("{} {}", kind.as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
    let mut converted = if from == to {
        object
    } else {
        let conversion = Conversion { object, from: from.clone(), to: to.to_owned() };
        convert(conversion).map_err(|problem| format!("{named} from {from} to {to}: {problem}"))?
    };
    let fields = converted.as_object_mut().ok_or_else(|| format!("{named}: the result is no object"))?;
    let theirs = fields.remove("metadata").unwrap_or_default();
    for field in ["labels", "annotations"] {
        if let Some(value) = theirs.get(field) {
            metadata[field] = value.clone();
        }
    }
    fields.insert("metadata".to_owned(), metadata);
    fields.insert("kind".to_owned(), kind);
    fields.insert("apiVersion".to_owned(), to.into());
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_stays_and_the_version_is_that_which_is_asked_for() {
        let object = json!({
            "apiVersion": "x/v1", "kind": "Tank",
            "metadata": {"name": "a", "uid": "1", "managedFields": [1], "annotations": {"a": "b"}}, "spec": {"level": 1},
        });
        let convert = |conversion: Conversion| {
            assert_eq!((conversion.from.as_str(), conversion.to.as_str()), ("x/v1", "x/v2"));
            // It neither names the annotations, nor keeps the name.
            let metadata = json!({"name": "other", "labels": {"c": "d"}});
            Ok(json!({"metadata": metadata, "spec": {"litres": conversion.object["spec"]["level"]}}))
        };
        let expected = json!({
            "apiVersion": "x/v2", "kind": "Tank",
            "metadata": {"name": "a", "uid": "1", "managedFields": [1], "annotations": {"a": "b"}, "labels": {"c": "d"}},
            "spec": {"litres": 1},
        });
        assert_eq!(one(object.clone(), "x/v2", &convert).unwrap(), expected);
        assert_eq!(one(object.clone(), "x/v1", &convert).unwrap(), object);
        let error = one(object, "x/v2", &|_| Err("no".to_owned())).unwrap_err();
        assert_eq!(error, "Tank a from x/v1 to x/v2: no");
    }
}

//! Bodies of reviews, which are JSON whatever their type is said to be.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Decodes a body, or returns what is wrong with it.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

/// The answer to a request that is no review.
pub(super) fn refuse(problem: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response()
}

/// The answer of a hook that cannot decide.
pub(super) fn fail(problem: &str) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")).into_response()
}

pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

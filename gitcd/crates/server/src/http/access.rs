//! Checks of requests, before any service or page (etcd: `embed/serve.go`).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, Request, StatusCode, Version, header};

use crate::gateway::Origins;

/// Answers requests that go no further: those without a host, CORS preflights, and those from web pages that are not allowed.
pub(crate) fn refuse<B>(origins: &Origins, request: &Request<B>) -> Option<Response> {
    if request.version() == Version::HTTP_11 {
        match request.headers().get_all(header::HOST).iter().count() {
            1 => {}
            0 => return Some(bad_request("400 Bad Request: missing required Host header")),
            _ => return Some(bad_request("400 Bad Request")),
        }
    }
    if request.method() == Method::OPTIONS {
        return Some(StatusCode::OK.into_response());
    }
    refuse_origin(origins, request)
}

/// Answers requests from web pages that are not allowed, on every path: a browser sends a request with `text/plain` to any server
/// without asking it first, and only hides the response.
pub(crate) fn refuse_origin<B>(origins: &Origins, request: &Request<B>) -> Option<Response> {
    let origin = origins.check(request.headers()).err()?;
    let message = format!("requests from web pages of {origin} are not answered: allow them with --cors={origin}\n");
    Some((StatusCode::FORBIDDEN, message).into_response())
}

fn bad_request(text: &'static str) -> Response {
    let mut response = (StatusCode::BAD_REQUEST, text).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Returns Go's response for a missing page.
pub(crate) fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// Returns an error as Go does.
pub(super) fn error(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text.into()).into_response()
}

//! What plain HTTP requests meet first, before any page (etcd: `embed/serve.go`).

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, Method, Request, StatusCode, Version, header};

use crate::gateway::{self, Origins};

/// Answers what gets no further: requests without a host, questions of browsers, pages that may not send requests.
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
    if gateway::takes(request.uri().path())
        && let Err(origin) = origins.check(request.headers())
    {
        let message =
            format!("requests from web pages of {origin} are not answered: allow them with --cors={origin}\n");
        return Some((StatusCode::FORBIDDEN, message).into_response());
    }
    None
}

fn bad_request(text: &'static str) -> Response {
    let mut response = (StatusCode::BAD_REQUEST, text).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What Go answers for a page that is not there.
pub(crate) fn not_found() -> Response<Body> {
    error(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// What Go answers in place of a page.
pub(super) fn error(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    (status, [(header::X_CONTENT_TYPE_OPTIONS, "nosniff")], text.into()).into_response()
}

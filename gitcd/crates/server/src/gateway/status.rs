//! gRPC's errors in HTTP.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tonic::{Code, Status};

/// An error as the whole answer.
pub(super) fn answer(status: &Status) -> Response<Body> {
    with_body(status, object(status).to_string())
}

/// One that a stream begins with.
pub(super) fn first_of_stream(status: &Status) -> Response<Body> {
    with_body(status, line(status))
}

/// One in a stream.
pub(super) fn line(status: &Status) -> String {
    format!("{}\n", json!({ "error": object(status) }))
}

fn with_body(status: &Status, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = http_status(status.code());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn object(status: &Status) -> Value {
    json!({ "code": status.code() as i32, "message": status.message() })
}

/// gRPC gateway's table.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // nginx' word for a client that is gone.
        Code::Cancelled => StatusCode::from_u16(499).expect("a number of three digits"),
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

//! gRPC errors as HTTP responses.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};
use tonic::{Code, Status};

/// Returns an error as the whole response.
pub(super) fn answer(status: &Status) -> Response<Body> {
    with_body(status, object(status).to_string())
}

/// Returns an error before the first message of a stream.
pub(super) fn first_of_stream(status: &Status) -> Response<Body> {
    with_body(status, line(status))
}

/// Returns the line for an error within a stream.
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

/// Converts a code as grpc-gateway does.
fn http_status(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        // nginx's status for a client that closed the connection.
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

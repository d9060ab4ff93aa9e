//! etcd's API in JSON over plain HTTP, as in its gRPC gateway: `curl -d '{"key":"Zm9v"}' …/v3/kv/range`.
//!
//! A request is converted to its gRPC request and handled as one: limits, alarms, deadlines, metrics and the client's identity
//! are those of gRPC. The response is converted back to JSON. Requests of gRPC clients do not pass through here.

mod frames;
mod headers;
mod json;
mod origins;
mod routes;
mod status;
mod stream;
mod values;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::BodyExt;
use tonic::Status;

use self::frames::Messages;
use self::headers::Forwarded;
use self::routes::Route;
use self::values::Values;

pub use self::origins::Origins;
pub(crate) use self::routes::takes;

/// How much larger JSON may be than its message: base64, and a name for every field.
const JSON_FACTOR: usize = 4;

/// Answers a request for which [`takes`] is true. `call` answers gRPC requests; `limit` is the largest message in bytes.
pub(crate) async fn answer<F>(
    request: Request<Body>,
    limit: usize,
    call: impl FnOnce(Request<Body>) -> F,
) -> Response<Body>
where
    F: Future<Output = Response<Body>>,
{
    exchange(request, limit.saturating_mul(JSON_FACTOR), call).await.unwrap_or_else(|refused| status::answer(&refused))
}

async fn exchange<F>(
    request: Request<Body>,
    limit: usize,
    call: impl FnOnce(Request<Body>) -> F,
) -> Result<Response<Body>, Status>
where
    F: Future<Output = Response<Body>>,
{
    let route = routes::find(request.uri().path()).ok_or_else(|| Status::not_found("Not Found"))?;
    if request.method() != Method::POST {
        return Err(Status::unimplemented("Method Not Allowed"));
    }
    let (parts, body) = request.into_parts();
    let forwarded = Forwarded::of(&parts)?;
    if route.takes_many() {
        return Ok(stream::both_ways(route, forwarded, Values::new(body, limit), call).await);
    }
    let message = match Values::new(body, limit).next().await? {
        Some(value) => route.encode(&value)?,
        // An empty body stands for a message without fields.
        None => Vec::new(),
    };
    let timeout = forwarded.timeout;
    let response = call(forwarded.request(route, Body::from(frames::framed(&message)))).await;
    if route.gives_many() {
        return Ok(stream::answer(route, response, timeout, None).await);
    }
    unary(route, response).await
}

async fn unary(route: &Route, response: Response<Body>) -> Result<Response<Body>, Status> {
    let mut messages = Messages::of(response)?;
    let message = messages.next().await?.ok_or_else(|| Status::internal("the response has no message"))?;
    // The status follows the message.
    if messages.next().await?.is_some() {
        return Err(Status::internal("the response has several messages"));
    }
    Ok(json_answer(Body::from(route.decode(message)?)))
}

fn json_answer(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("grpc-metadata-content-type", HeaderValue::from_static("application/grpc"));
    response
}

/// Returns the next chunk of a body.
async fn next_chunk(body: &mut Body) -> Option<Result<Bytes, Status>> {
    loop {
        match body.frame().await? {
            Ok(frame) => match frame.into_data() {
                Ok(data) => return Some(Ok(data)),
                Err(_trailers) => {}
            },
            Err(_gone) => return Some(Err(Status::cancelled("context canceled"))),
        }
    }
}

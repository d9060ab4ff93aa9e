//! The protocol of gRPC requests, as grpc-go checks it (`internal/transport/http2_server.go`).

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tonic::Status;

/// Media type of all gRPC requests, alone or before a `+` or `;`.
const MEDIA_TYPE: &[u8] = b"application/grpc";

/// Returns whether a request has a media type of gRPC. `application/grpc-web` is another protocol.
pub(super) fn is_grpc<B>(request: &Request<B>) -> bool {
    content_type(request.headers()).is_some_and(|kind| {
        let rest = kind.len().checked_sub(MEDIA_TYPE.len()).map(|_| kind.split_at(MEDIA_TYPE.len()));
        rest.is_some_and(|(kind, rest)| {
            kind.eq_ignore_ascii_case(MEDIA_TYPE) && matches!(rest.first(), None | Some(b'+' | b';'))
        })
    })
}

/// Returns whether a path has the form of a method of gRPC, `/package.Service/Method`.
pub(super) fn is_method(path: &str) -> bool {
    let names = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    names.is_some_and(|(service, method)| service.contains('.') && !method.is_empty() && !method.contains('/'))
}

fn content_type(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes)
}

/// Answers requests for methods of gRPC that are not gRPC requests. A browser could otherwise send them for any web page.
pub(super) fn refuse<B>(request: &Request<B>) -> Option<Response<Body>> {
    let (code, status) = if !is_grpc(request) {
        let kind = String::from_utf8_lossy(content_type(request.headers()).unwrap_or_default()).into_owned();
        let message = format!("invalid gRPC request content-type {kind:?}");
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, Status::invalid_argument(message))
    } else if request.method() != Method::POST {
        let message =
            format!("Received a HEADERS frame with :method {:?} which should be POST", request.method().as_str());
        (StatusCode::METHOD_NOT_ALLOWED, Status::internal(message))
    } else {
        return None;
    };
    let mut response = status.into_http();
    *response.status_mut() = code;
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_a_service_with_its_package() {
        for path in ["/etcdserverpb.KV/Put", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/a.b/c"] {
            assert!(is_method(path), "{path}");
        }
        for path in ["/health", "/v3/kv/put", "/debug/vars", "/livez/non_learner", "/", "/a.b", "/a.b/", "/a.b/c/d"] {
            assert!(!is_method(path), "{path}");
        }
    }

    #[test]
    fn only_media_types_of_grpc_are_accepted() {
        for (kind, accepted) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc;charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/grpc-web+proto", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("text/plain", false),
            ("application/grp", false),
            ("", false),
        ] {
            let request = Request::post("/etcdserverpb.KV/Put").header(header::CONTENT_TYPE, kind).body(()).unwrap();
            assert_eq!((is_grpc(&request), refuse(&request).is_none()), (accepted, accepted), "{kind}");
        }
        assert_eq!(refuse(&Request::post("/").body(()).unwrap()).unwrap().status(), 415);
        let get = Request::get("/").header(header::CONTENT_TYPE, "application/grpc").body(()).unwrap();
        assert_eq!(refuse(&get).unwrap().status(), 405);
    }
}

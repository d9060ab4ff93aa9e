//! The headers of a request that are forwarded to gRPC.

use std::time::Duration;

use axum::body::Body;
use gitcd_net::listener::Peer;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};
use tonic::Status;

use super::routes::Route;

/// Prefix of headers that are the client's gRPC metadata.
const METADATA: &str = "grpc-metadata-";
const TIMEOUT: &str = "grpc-timeout";

/// The part of a request's head that is forwarded to gRPC.
#[derive(Debug)]
pub(super) struct Forwarded {
    headers: HeaderMap,
    peer: Option<Peer>,
    /// The client's timeout, if it sends one.
    pub(super) timeout: Option<Duration>,
}

impl Forwarded {
    /// # Errors
    /// `InvalidArgument` for an invalid `Grpc-Timeout`.
    pub(super) fn of(parts: &Parts) -> Result<Self, Status> {
        let mut headers = HeaderMap::new();
        let same = [header::AUTHORIZATION, header::USER_AGENT].map(|name| name.as_str().to_owned());
        for (name, value) in &parts.headers {
            let name = name.as_str();
            let own = name.strip_prefix(METADATA).filter(|name| !is_reserved(name));
            let same = || (same.iter().any(|same| same == name) || is_trace(name)).then_some(name);
            if let Some(Ok(name)) = own.or_else(same).map(HeaderName::try_from) {
                headers.append(name, value.clone());
            }
        }
        let timeout = parts.headers.get(TIMEOUT).map(timeout).transpose()?.filter(|timeout| !timeout.is_zero());
        Ok(Self { headers, peer: parts.extensions.get().cloned(), timeout })
    }

    /// Returns the gRPC request for a route.
    pub(super) fn request(self, route: &Route, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = route.method.parse().expect("names of services and methods are paths");
        let headers = request.headers_mut();
        *headers = self.headers;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        if let Some(timeout) = self.timeout {
            // gRPC allows at most eight digits.
            let millis = timeout.as_millis().clamp(1, 99_999_999);
            headers.insert(TIMEOUT, HeaderValue::try_from(format!("{millis}m")).expect("digits"));
        }
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        request
    }
}

/// Whether a header is reserved by gRPC or HTTP.
fn is_reserved(name: &str) -> bool {
    name.starts_with("grpc-")
        || [
            "content-type",
            "content-length",
            "content-encoding",
            "te",
            "trailer",
            "transfer-encoding",
            "connection",
            "host",
        ]
        .contains(&name)
}

fn is_trace(name: &str) -> bool {
    ["traceparent", "tracestate"].contains(&name)
}

/// Parses gRPC's format: a number and a unit.
fn timeout(value: &HeaderValue) -> Result<Duration, Status> {
    let text = String::from_utf8_lossy(value.as_bytes());
    let parsed = || {
        let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let number: u64 = digits.parse().ok()?;
        Some(match unit {
            "H" => Duration::from_secs(number.saturating_mul(3600)),
            "M" => Duration::from_secs(number.saturating_mul(60)),
            "S" => Duration::from_secs(number),
            "m" => Duration::from_millis(number),
            "u" => Duration::from_micros(number),
            "n" => Duration::from_nanos(number),
            _ => return None,
        })
    };
    parsed().ok_or_else(|| Status::invalid_argument(format!("invalid grpc-timeout: {text}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarded(headers: &[(&str, &str)]) -> Result<Forwarded, Status> {
        let request = headers.iter().fold(Request::builder(), |request, (name, value)| request.header(*name, *value));
        Forwarded::of(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn metadata_go_on_and_what_is_grpcs_own_does_not() {
        let request = forwarded(&[
            ("grpc-metadata-hasleader", "true"),
            ("grpc-metadata-grpc-encoding", "gzip"),
            ("grpc-metadata-content-type", "text/plain"),
            ("user-agent", "curl/8"),
            ("authorization", "token"),
            ("accept", "*/*"),
            ("grpc-timeout", "2S"),
        ]);
        let request = request.unwrap().request(super::super::routes::find("/v3/kv/put").unwrap(), Body::empty());
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!((header("hasleader"), header("user-agent")), (Some("true"), Some("curl/8")));
        assert_eq!((header("authorization"), header("accept")), (Some("token"), None));
        assert_eq!((header("content-type"), header("grpc-encoding")), (Some("application/grpc"), None));
        assert_eq!((header("grpc-timeout"), request.uri().path()), (Some("2000m"), "/etcdserverpb.KV/Put"));
    }

    #[test]
    fn timeouts_are_grpcs_and_none_is_for_ever() {
        assert_eq!(forwarded(&[("grpc-timeout", "1M")]).unwrap().timeout, Some(Duration::from_mins(1)));
        assert_eq!(forwarded(&[("grpc-timeout", "0n")]).unwrap().timeout, None);
        assert_eq!(forwarded(&[]).unwrap().timeout, None);
        for wrong in ["x", "", "5", "1.5S", "S"] {
            let message = forwarded(&[("grpc-timeout", wrong)]).unwrap_err().message().to_owned();
            assert_eq!(message, format!("invalid grpc-timeout: {wrong}"));
        }
    }
}

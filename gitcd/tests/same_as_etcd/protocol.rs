//! Requests over HTTP/2 to methods of gRPC that are not gRPC requests.

use bytes::{BufMut, Bytes, BytesMut};
use gitcd::proto::etcdserverpb::PutRequest;
use http::{HeaderMap, Method, Request};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::build::{get, put};
use crate::support::{Kind, Launch, PATIENCE, Server};

const PUT: &str = "/etcdserverpb.KV/Put";

fn framed(request: &PutRequest) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(request.encoded_len() as u32);
    request.encode(&mut frame).expect("the buffer grows");
    frame.freeze()
}

/// Sends a put, and returns the status and the headers of the response, with its trailers.
async fn ask(server: &Server, method: Method, headers: &[(&str, &str)]) -> (u16, HeaderMap) {
    let stream = TcpStream::connect(server.address()).await.expect("the server is listening");
    let (sender, connection) = h2::client::handshake(stream).await.expect("the server speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(format!("http://{}{PUT}", server.address()));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let mut sender = sender.ready().await.expect("the connection is open");
    let request = request.header("te", "trailers").body(()).expect("the request is valid");
    let (answer, mut body) = sender.send_request(request, false).expect("the connection is open");
    // The server may have refused the request already.
    let _ = body.send_data(framed(&put("/registry/a", "1")), true);
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("the server answers in time");
    let (parts, mut body) = answer.expect("the stream is open").into_parts();
    let mut headers = parts.headers;
    // After a refusal, the stream may be reset.
    while let Some(Ok(_)) = body.data().await {}
    if let Ok(Some(trailers)) = body.trailers().await {
        headers.extend(trailers);
    }
    connection.abort();
    (parts.status.as_u16(), headers)
}

/// Returns a header as text, decoded as `grpc-message` is encoded.
fn decoded(headers: &HeaderMap, name: &str) -> Option<String> {
    let text = headers.get(name)?.to_str().expect("the header is text");
    let mut parts = text.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (code, rest) = part.split_at(2);
        decoded.push(char::from(u8::from_str_radix(code, 16).expect("two hexadecimal digits")));
        decoded.push_str(rest);
    }
    Some(decoded)
}

#[tokio::test]
async fn a_request_without_grpcs_content_type_or_method_is_refused_as_in_etcd() {
    let (etcd, other) = tokio::join!(Server::start(Kind::Etcd), Server::start(Kind::under_test()));
    let kinds = [
        None,
        Some(""),
        Some("text/plain"),
        Some("text/plain;charset=UTF-8"),
        Some("application/json"),
        Some("application/x-www-form-urlencoded"),
        Some("application/grpc-web"),
        Some("application/grpc-web+proto"),
        Some("application/grpcx"),
    ];
    let kinds = kinds.into_iter().map(|kind| (Method::POST, kind, 415));
    let methods = [Method::GET, Method::PUT].map(|method| (method, Some("application/grpc"), 405));
    for (method, kind, status) in kinds.chain(methods) {
        let mut compared = Vec::new();
        for server in [&etcd, &other] {
            let headers: Vec<_> = kind.map(|kind| ("content-type", kind)).into_iter().collect();
            let (answered, headers) = ask(server, method.clone(), &headers).await;
            let [media, code, message] =
                ["content-type", "grpc-status", "grpc-message"].map(|name| decoded(&headers, name));
            compared.push((answered, media, code, message));
        }
        assert_eq!(compared[0], compared[1], "{method} {kind:?}");
        assert_eq!(compared[1].0, status, "{method} {kind:?}");
    }
    for server in [&etcd, &other] {
        assert_eq!(server.client().await.range(get("/registry/a")).await.ok().count, 0, "nothing was written");
        for kind in ["application/grpc", "application/grpc+proto"] {
            let (status, headers) = ask(server, Method::POST, &[("content-type", kind)]).await;
            assert_eq!((status, decoded(&headers, "grpc-status").as_deref()), (200, Some("0")), "{kind}");
        }
    }
}

/// A browser sends `text/plain` to another origin without a preflight request, and after DNS rebinding any type to its own.
#[tokio::test]
async fn a_web_page_that_is_not_allowed_gets_no_answer_on_any_path() {
    let page = ("origin", "http://page.example");
    let server = Server::start(Kind::Gitcd).await;
    for kind in ["text/plain", "application/json", "application/grpc", "application/grpc-web"] {
        let (status, headers) = ask(&server, Method::POST, &[("content-type", kind), page]).await;
        assert_eq!((status, headers.get("access-control-allow-origin")), (403, None), "{kind}");
    }
    for path in ["/health", "/metrics", "/status", "/version", "/debug/vars", "/v3/kv/range"] {
        let mut stream = TcpStream::connect(server.address()).await.expect("the server is listening");
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\n{}: {}\r\nconnection: close\r\n\r\n", page.0, page.1);
        stream.write_all(request.as_bytes()).await.expect("the server reads its input");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("the server answers");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path}: {answer}");
    }
    assert_eq!(server.client().await.range(get("/registry/a")).await.ok().count, 0, "nothing was written");
    let allowing = Launch::new(Kind::Gitcd).argument("--cors=http://page.example").start().await;
    let (status, _) = ask(&allowing, Method::POST, &[("content-type", "application/grpc"), page]).await;
    assert_eq!(status, 200);
    let (status, _) = ask(&allowing, Method::POST, &[("content-type", "text/plain"), page]).await;
    assert_eq!(status, 415);
}

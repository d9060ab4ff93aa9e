//! Requests on the wire: in pieces, incomplete, and through both read paths.

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use gitcd::proto::etcdserverpb::{RangeRequest, RangeResponse, TxnRequest};
use prost::Message;
use tokio::net::TcpStream;

use super::support::build::{all, compact, get, list, put};
use super::support::{Kind, PATIENCE, Server};

/// Most of the deadline of 300 ms, which starts when the server has received the request.
const SOON: Duration = Duration::from_millis(250);

/// A connection for requests that are sent piece by piece.
struct Raw {
    sender: h2::client::SendRequest<Bytes>,
    authority: String,
    _connection: tokio::task::JoinHandle<Result<(), h2::Error>>,
}

impl Raw {
    async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address()).await.expect("the server is listening");
        let (sender, connection) = h2::client::handshake(stream).await.expect("the server speaks HTTP/2");
        Self { sender, authority: server.address().to_string(), _connection: tokio::spawn(connection) }
    }

    /// Starts a request to a method of KV.
    async fn call(
        &self,
        method: &str,
        header: Option<(&str, &str)>,
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut request = http::Request::post(format!("http://{}/etcdserverpb.KV/{method}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let mut sender = self.sender.clone().ready().await.expect("the connection is open");
        let request = request.body(()).expect("the request is valid");
        sender.send_request(request, false).expect("the connection is open")
    }
}

/// Returns the status code of a response, and its message if any.
async fn answer(answer: h2::client::ResponseFuture) -> (Option<String>, Bytes) {
    let answer =
        tokio::time::timeout(PATIENCE, answer).await.expect("the server answers in time").expect("the stream is open");
    let code = |headers: &http::HeaderMap| Some(headers.get("grpc-status")?.to_str().ok()?.to_owned());
    let head = code(answer.headers());
    let mut body = answer.into_body();
    let mut message = BytesMut::new();
    while let Some(data) = body.data().await {
        message.extend_from_slice(&data.expect("the response is complete"));
    }
    let trailers = body.trailers().await.expect("the response is complete");
    (head.or_else(|| code(&trailers?)), message.freeze())
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.encoded_len() as u32);
    message.encode(&mut frame).expect("the buffer grows");
    frame.freeze()
}

/// etcd ends the stream without a status, which clients treat the same.
#[tokio::test]
async fn a_request_that_does_not_come_to_its_end_is_answered_at_its_deadline() {
    let server = Server::start(Kind::Gitcd).await;
    let raw = Raw::connect(&server).await;
    for method in ["Range", "Put", "Txn"] {
        for begun in [&b""[..], b"\0", b"\0\0\0\0\x7f\n"] {
            let (answered, mut body) = raw.call(method, Some(("grpc-timeout", "300m"))).await;
            let start = Instant::now();
            if !begun.is_empty() {
                body.send_data(Bytes::from_static(begun), false).expect("the stream is open");
            }
            let (code, message) = answer(answered).await;
            assert_eq!((code.as_deref(), &message[..]), (Some("4"), &b""[..]), "{method} {begun:?}");
            assert!(start.elapsed() >= SOON, "{method} {begun:?}");
        }
    }
    // They are counted under their own method and code.
    let figures = server.page("/metrics").await;
    let line = figures.lines().find(|line| line.contains("grpc_method=\"Range\"") && line.contains("DeadlineExceeded"));
    assert!(line.is_some_and(|line| line.ends_with(" 3")), "{line:?}");
}

#[tokio::test]
async fn a_request_in_many_pieces_is_answered_like_one_in_one() {
    let server = Server::start(Kind::Gitcd).await;
    server.client().await.put(put("/registry/a", "1")).await.ok();
    let raw = Raw::connect(&server).await;
    for timeout in [None, Some(("grpc-timeout", "1H"))] {
        let (answered, mut body) = raw.call("Range", timeout).await;
        for piece in frame(&get("/registry/a")).chunks(3) {
            body.send_data(Bytes::copy_from_slice(piece), false).expect("the stream is open");
            tokio::task::yield_now().await;
        }
        body.send_data(Bytes::new(), true).expect("the stream is open");
        let (code, message) = answer(answered).await;
        let found = RangeResponse::decode(&message[5..]).expect("the response can be decoded");
        assert_eq!((code.as_deref(), found.count), (Some("0"), 1));
    }
    // Another method, as it uses another decoder.
    let (answered, mut body) = raw.call("Txn", None).await;
    let request: TxnRequest = all([get("/registry/a")]);
    for piece in frame(&request).chunks(3) {
        body.send_data(Bytes::copy_from_slice(piece), false).expect("the stream is open");
        tokio::task::yield_now().await;
    }
    body.send_data(Bytes::new(), true).expect("the stream is open");
    assert_eq!(answer(answered).await.0.as_deref(), Some("0"));
}

/// A request with an encoding header bypasses the range fast path.
#[tokio::test]
async fn a_read_is_answered_with_the_same_bytes_on_either_way() {
    let server = Server::start(Kind::Gitcd).await;
    let client = server.client().await;
    for number in 0..30 {
        client.put(put(&format!("/registry/{number:02}"), &number.to_string())).await.ok();
    }
    client.compact(compact(10)).await.ok();
    let raw = Raw::connect(&server).await;
    let requests = [
        get("/registry/07"),
        get("/none"),
        get(""),
        list("/registry/"),
        RangeRequest { limit: 5, ..list("/registry/") },
        RangeRequest { limit: 5, revision: 20, keys_only: true, ..list("/registry/1") },
        RangeRequest { count_only: true, serializable: true, ..list("/registry/") },
        RangeRequest { sort_order: 2, sort_target: 3, ..list("/registry/") },
        RangeRequest { sort_order: 9, ..list("/registry/") },
        RangeRequest { revision: 9, ..get("/registry/07") },
        RangeRequest { revision: 1000, ..get("/registry/07") },
    ];
    for request in requests {
        let ask = async |header| {
            let (answered, mut body) = raw.call("Range", header).await;
            body.send_data(frame(&request), true).expect("the stream is open");
            answer(answered).await
        };
        let quick = ask(None).await;
        assert_eq!(quick, ask(Some(("grpc-encoding", "identity"))).await, "{request:?}");
        assert_eq!(quick.0.as_deref() == Some("0"), !quick.1.is_empty(), "{request:?}");
    }
}

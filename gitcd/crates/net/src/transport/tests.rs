use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use hyper::body::Incoming as RequestBody;
use hyper::{Request, Response};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::*;
use crate::listener::{Limits, Network};

/// More than any client in these tests needs.
const LONG: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(100);

struct Server {
    address: SocketAddr,
    network: Arc<Network>,
    /// Each permit completes one request.
    answers: Arc<tokio::sync::Semaphore>,
    _stop: watch::Sender<bool>,
}

impl Server {
    async fn start(settings: Transport, limits: Limits) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, network) = (listener.local_addr().unwrap(), Arc::new(Network::default()));
        let incoming = Incoming::limited(listener, None, network.clone(), limits);
        let answers = Arc::new(tokio::sync::Semaphore::new(0));
        let permits = answers.clone();
        let answer = move |_: Request<RequestBody>| {
            let permits = permits.clone();
            async move {
                permits.acquire().await.unwrap().forget();
                Ok(Response::new("answer".to_owned()))
            }
        };
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(serve(incoming, settings, None, answer, stopped));
        Self { address, network, answers, _stop: stop }
    }

    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    fn timed_out(&self) -> u64 {
        self.network.connections.timed_out.load(Ordering::Relaxed)
    }
}

/// Waits until the server closes the connection; returns what it has sent.
async fn closed(mut stream: TcpStream) -> Vec<u8> {
    let mut sent = Vec::new();
    let end = tokio::time::timeout(LONG, stream.read_to_end(&mut sent)).await;
    let _reset_or_end = end.expect("the server closes the connection");
    sent
}

fn settings(preface: Duration, idle: Duration) -> Transport {
    Transport { preface_timeout: preface, idle_timeout: idle, ..Transport::default() }
}

#[tokio::test]
async fn a_client_that_does_not_begin_a_request_is_disconnected() {
    let server = Server::start(settings(SHORT, LONG), Limits::default()).await;
    for begun in [&b""[..], b"G", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begun).await.unwrap();
        assert!(closed(stream).await.is_empty(), "{begun:?}");
    }
    assert_eq!(server.timed_out(), 3);
}

#[tokio::test]
async fn a_client_without_requests_is_disconnected_with_a_goaway() {
    let server = Server::start(settings(LONG, SHORT), Limits::default()).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.unwrap();
    let connection = tokio::spawn(connection);
    // Takes longer than an idle connection may be open.
    let uri = format!("http://{}/", server.address);
    let request = Request::get(uri).body(String::new()).unwrap();
    let mut answer = std::pin::pin!(sender.send_request(request));
    assert!(tokio::time::timeout(SHORT * 3, answer.as_mut()).await.is_err());
    server.answers.add_permits(1);
    assert_eq!(answer.await.expect("a request in progress is answered").status(), 200);
    let ended = tokio::time::timeout(LONG, connection).await.expect("the server closes the connection");
    ended.unwrap().expect("the end is orderly");
    assert_eq!(server.timed_out(), 1);
}

#[tokio::test]
async fn an_address_that_has_reached_its_limit_is_disconnected_and_others_are_served() {
    let limits = Limits { connections: 3, per_address: 2 };
    let server = Server::start(settings(LONG, LONG), limits).await;
    let crowd = [server.connect_from(2).await, server.connect_from(2).await];
    assert!(closed(server.connect_from(2).await).await.is_empty());
    server.answers.add_permits(2);
    let mut other = server.connect_from(3).await;
    let request = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    other.write_all(request).await.unwrap();
    assert!(closed(other).await.starts_with(b"HTTP/1.1 200"));
    // With all places taken, a client waits until one is free.
    let third = server.connect_from(3).await;
    let mut waiting = server.connect_from(4).await;
    waiting.write_all(request).await.unwrap();
    while server.network.connections.stalls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    drop((crowd, third));
    assert!(closed(waiting).await.starts_with(b"HTTP/1.1 200"));
    assert_eq!(server.network.connections.refused.load(Ordering::Relaxed), 1);
}

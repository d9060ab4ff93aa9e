//! HTTP/2 keepalive, stream limits, and progress notifications.

use gitcd::proto::etcdserverpb::watch_client::WatchClient;
use gitcd::proto::etcdserverpb::watch_request::RequestUnion;
use gitcd::proto::etcdserverpb::{WatchCreateRequest, WatchRequest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::build::{put, watch};
use super::support::{Kind, Launch, Server};

const PING: u8 = 6;
const ACK: u8 = 1;

/// An HTTP/2 client that never responds.
struct Mute(TcpStream);

impl Mute {
    async fn connect(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address()).await.expect("the server is listening");
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the server reads its input");
        let mut mute = Self(stream);
        mute.send(4, &[]).await;
        mute
    }

    async fn send(&mut self, kind: u8, payload: &[u8]) {
        let header = [0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 0];
        self.0.write_all(&[&header, payload].concat()).await.expect("the server reads its input");
    }

    /// Reads type and flags of the next frame; `None` once the server has closed the connection.
    async fn frame(&mut self) -> Option<(u8, u8)> {
        let mut header = [0; 9];
        self.0.read_exact(&mut header).await.ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((header[3], header[4]))
    }
}

/// Returns the maximum number of concurrent streams that the server permits.
async fn streams(server: &Server) -> usize {
    let stream = TcpStream::connect(server.address()).await.expect("the server is listening");
    let (sender, connection) = h2::client::handshake(stream).await.expect("the server speaks HTTP/2");
    let connection = tokio::spawn(connection);
    let mut sender = sender.ready().await.expect("the server speaks HTTP/2");
    // The response comes after the settings.
    let request = http::Request::get(format!("http://{}/health", server.address())).body(());
    let request = request.expect("the request is valid");
    let (answer, _) = sender.send_request(request, true).expect("the connection is new");
    assert_eq!(answer.await.expect("the server answers").status(), 200);
    connection.abort();
    sender.current_max_send_streams()
}

/// Waits for `notes` progress notifications on an idle watch.
async fn progress(server: &Server, notes: usize) {
    let create = WatchCreateRequest { progress_notify: true, ..watch("/idle") };
    let request = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
    let requests = futures::StreamExt::chain(futures::stream::iter([request]), futures::stream::pending());
    let mut client = WatchClient::new(server.channel().await);
    let mut answers = client.watch(requests).await.expect("the server accepts the stream").into_inner();
    let mut next = async || answers.message().await.expect("the stream is open").expect("a message follows");
    assert!(next().await.created);
    for _ in 0..notes {
        let note = next().await;
        assert!(note.events.is_empty() && !note.canceled, "{note:?}");
    }
}

#[tokio::test]
async fn clients_learn_how_many_streams_they_may_open() {
    let server = Launch::new(Kind::Gitcd).argument("--max-concurrent-streams=7").start().await;
    assert_eq!(streams(&server).await, 7);
    let server = Server::start(Kind::Gitcd).await;
    assert!(streams(&server).await >= u32::MAX as usize);
}

#[tokio::test]
async fn clients_that_give_no_sign_of_life_are_dropped_and_quiet_ones_are_kept() {
    let launch = Launch::new(Kind::Gitcd).argument("--grpc-keepalive-min-time=1h30m");
    let server =
        launch.argument("--grpc-keepalive-interval=100ms").argument("--grpc-keepalive-timeout=1").start().await;
    let quiet = server.client().await;
    let mut watching = quiet.watch();
    watching.create(watch("/a")).await;

    let mut mute = Mute::connect(&server).await;
    let mut asked = false;
    while let Some(frame) = mute.frame().await {
        asked |= frame == (PING, 0);
    }
    assert!(asked);
    // The idle client has been pinged by now, and its watch still works.
    quiet.put(put("/a", "1")).await.ok();
    assert_eq!(watching.events(1).await.len(), 1);
}

#[tokio::test]
async fn nobody_is_asked_for_a_sign_of_life_if_that_is_off() {
    for off in [
        ["--grpc-keepalive-interval=0", "--grpc-keepalive-timeout=1s"],
        ["--grpc-keepalive-interval=10ms", "--grpc-keepalive-timeout=0"],
    ] {
        let launch = Launch::new(Kind::Gitcd).argument("--watch-progress-notify-interval=100ms");
        let server = launch.argument(off[0]).argument(off[1]).start().await;
        let mut mute = Mute::connect(&server).await;
        // More than 20 times the keepalive interval.
        progress(&server, 3).await;
        mute.send(PING, &[7; 8]).await;
        while let Some((kind, flags)) = mute.frame().await {
            if kind == PING {
                assert_eq!(flags, ACK, "{off:?}");
                break;
            }
        }
    }
}

#[tokio::test]
async fn watchers_get_the_revision_as_often_as_the_flag_says() {
    for interval in ["--watch-progress-notify-interval=150ms", "--experimental-watch-progress-notify-interval=1"] {
        let server = Launch::new(Kind::Gitcd).argument(interval).start().await;
        progress(&server, 2).await;
    }
}

#[tokio::test]
async fn a_wrong_duration_is_refused_with_the_name_of_its_flag() {
    let exit = Launch::new(Kind::Gitcd).argument("--grpc-keepalive-interval=soon").spawn().exit().await;
    assert!(!exit.status.success());
    assert!(
        exit.output.contains("--grpc-keepalive-interval") && exit.output.contains("such as 10m"),
        "{}",
        exit.output
    );
}

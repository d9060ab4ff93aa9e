//! A port with TLS whose connections are limited in number and in time.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tower::ServiceExt;

/// Time before the next attempt to accept a connection, if there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Bytes of a head or body that are read ahead from a connection over HTTP/1.1.
const READ_AHEAD: usize = 32 << 10;
/// Bytes of bodies that a client may send over HTTP/2 before a handler reads them; HTTP's minimum for a connection.
const UNREAD: u32 = 65_535;

/// Returns the TLS configuration for the next connection; `None` while there is none. May block. Open connections keep what they
/// started with.
pub(crate) type TlsConfig = Arc<dyn Fn() -> Option<Arc<ServerConfig>> + Send + Sync>;

/// Limits of a port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at a time. Further ones wait.
    pub(crate) connections: usize,
    /// Connections at a time from one address. Further ones are closed.
    pub(crate) connections_of_peer: usize,
    /// How long a handshake may take.
    pub(crate) handshake: Duration,
    /// How long a request may take after its head.
    pub(crate) request: Duration,
    /// How long a connection may wait for the head of a request.
    pub(crate) idle: Duration,
}

/// A port with TLS. HTTP/2 is spoken with clients that negotiate it.
pub(crate) struct TlsPort {
    pub(crate) listener: TcpListener,
    /// What it serves, for logs.
    pub(crate) what: &'static str,
    pub(crate) config: TlsConfig,
    pub(crate) limits: Limits,
}

impl TlsPort {
    /// Answers requests until `stop` is true, then those in flight. A client that is slow does not delay others.
    pub(crate) async fn serve(self, pages: Router, mut stop: watch::Receiver<bool>) {
        let Self { listener, what, config, limits } = self;
        let (peers, mut connections, stopped) = (Peers::default(), JoinSet::new(), stop.clone());
        let mut stop = pin!(is_true(&mut stop));
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                connected = listener.accept(), if connections.len() < limits.connections => match connected {
                    Ok((stream, address)) => {
                        let peer = address.ip().to_canonical();
                        let Some(counted) = peers.admit(peer, limits.connections_of_peer) else {
                            tracing::debug!(what, %peer, "closed a connection: its peer has too many");
                            continue;
                        };
                        let (config, pages, stopped) = (config.clone(), pages.clone(), stopped.clone());
                        connections.spawn(async move {
                            if let Err(error) = converse(stream, config, pages, limits, stopped).await {
                                tracing::debug!(what, %peer, %error, "a connection failed");
                            }
                            drop(counted);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(what, %error, "cannot accept a connection");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }
}

async fn converse(
    stream: TcpStream,
    config: TlsConfig,
    pages: Router,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // Before there is a certificate, the connection is closed, and the client tries again.
    let Some(config) = tokio::task::spawn_blocking(move || config()).await? else { return Ok(()) };
    let stream = timeout(limits.handshake, TlsAcceptor::from(config).accept(stream)).await??;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let requests = watch::Sender::new(0);
    let counted = requests.subscribe();
    let service = service_fn(move |request: Request<Incoming>| {
        let (pages, in_flight) = (pages.clone(), InFlight::begin(&requests));
        async move {
            let answer = timeout(limits.request, pages.oneshot(request.map(Body::new))).await;
            drop(in_flight);
            Ok::<Response, Infallible>(match answer {
                Ok(Ok(answer)) => answer,
                Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
            })
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle).max_buf_size(READ_AHEAD);
    builder.http2().timer(TokioTimer::new());
    builder.http2().initial_stream_window_size(UNREAD).initial_connection_window_size(UNREAD);
    let builder = if is_http2 { builder.http2_only() } else { builder.http1_only() };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = idle(counted, limits.idle) => {}
        () = is_true(&mut stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    // A client may not read its answer.
    timeout(limits.request, connection).await?
}

async fn is_true(stop: &mut watch::Receiver<bool>) {
    // A dropped sender counts as a stop.
    let _gone = stop.wait_for(|stop| *stop).await;
}

/// Completes when there has been no request for this long.
async fn idle(mut requests: watch::Receiver<usize>, limit: Duration) {
    loop {
        // Fails when the connection has ended.
        if requests.wait_for(|requests| *requests == 0).await.is_err() {
            return;
        }
        match timeout(limit, requests.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Counts a request until it is dropped.
struct InFlight(watch::Sender<usize>);

impl InFlight {
    fn begin(requests: &watch::Sender<usize>) -> Self {
        requests.send_modify(|requests| *requests += 1);
        Self(requests.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.send_modify(|requests| *requests -= 1);
    }
}

/// The number of connections of each peer.
#[derive(Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// Counts a connection until it is dropped.
struct Admitted {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    /// Counts a connection; `None` if the peer has this many already.
    fn admit(&self, peer: IpAddr, most: usize) -> Option<Admitted> {
        let mut counts = self.counts();
        let count = counts.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Admitted { peers: self.clone(), peer })
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Instant;

    use axum::routing::{get, post};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use tokio_rustls::rustls::pki_types::ServerName;
    use trishanku_service::tls::{ClientTls, server_config};

    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(300);
    const LIMITS: Limits =
        Limits { connections: 8, connections_of_peer: 8, handshake: LONG, request: LONG, idle: LONG };

    struct Served {
        address: SocketAddr,
        connector: TlsConnector,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    async fn serve(limits: Limits) -> Served {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let config = server_config(certificate.as_bytes(), key.as_bytes(), &[b"h2", b"http/1.1"]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let config: TlsConfig = Arc::new(move || Some(config.clone()));
        let pages = Router::new().route("/", get(async || "ok")).route("/", post(async |text: String| text));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(TlsPort { listener, what: "a test", config, limits }.serve(pages, stopped));
        let trusted = ClientTls::new().authorities(certificate.as_bytes()).unwrap().config();
        Served { address, connector: TlsConnector::from(Arc::new(trusted)), stop, task }
    }

    impl Served {
        async fn connect(&self) -> std::io::Result<TlsStream<TcpStream>> {
            let stream = TcpStream::connect(self.address).await?;
            self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await
        }
    }

    async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        let mut answer = String::new();
        while !answer.ends_with("\r\n\r\nok") {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await? {
                0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                read => answer.push_str(std::str::from_utf8(&bytes[..read]).unwrap()),
            }
        }
        Ok(answer)
    }

    /// Waits until the server closes the connection; returns what it sent before.
    async fn closed(mut stream: impl AsyncReadExt + Unpin) -> String {
        let mut text = Vec::new();
        // A connection that is reset is closed, too.
        let _end = timeout(LONG, stream.read_to_end(&mut text)).await.expect("it is closed");
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn a_peer_with_too_many_connections_gets_no_further_one_until_it_closes_one() {
        let served = serve(Limits { connections_of_peer: 2, ..LIMITS }).await;
        let (mut one, mut two) = (served.connect().await.unwrap(), served.connect().await.unwrap());
        assert!(served.connect().await.is_err());
        for stream in [&mut one, &mut two] {
            assert!(ask(stream).await.unwrap().starts_with("HTTP/1.1 200"));
        }
        drop(one);
        timeout(LONG, async {
            while served.connect().await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await
        .expect("there is room");
    }

    #[tokio::test]
    async fn a_connection_beyond_the_limit_waits_for_another_to_end() {
        let served = serve(Limits { connections: 1, idle: SHORT, ..LIMITS }).await;
        let (started, first) = (Instant::now(), served.connect().await.unwrap());
        let mut second = served.connect().await.unwrap();
        assert!(started.elapsed() >= SHORT, "the first one was closed because it was idle");
        assert!(ask(&mut second).await.unwrap().contains("200"));
        closed(first).await;
    }

    #[tokio::test]
    async fn who_is_silent_is_disconnected_and_who_asks_is_not() {
        let served = serve(Limits { handshake: SHORT, idle: SHORT * 4, ..LIMITS }).await;
        // Without a handshake, and without a request.
        closed(TcpStream::connect(served.address).await.unwrap()).await;
        closed(served.connect().await.unwrap()).await;
        let (started, mut asks) = (Instant::now(), served.connect().await.unwrap());
        while started.elapsed() < SHORT * 8 {
            ask(&mut asks).await.unwrap();
            tokio::time::sleep(SHORT / 3).await;
        }
        closed(asks).await;
    }

    #[tokio::test]
    async fn a_request_whose_body_does_not_come_is_ended() {
        let served = serve(Limits { request: SHORT, ..LIMITS }).await;
        let mut stream = served.connect().await.unwrap();
        let head = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 10\r\n\r\nhalf";
        stream.write_all(head).await.unwrap();
        assert!(closed(stream).await.starts_with("HTTP/1.1 408"));
    }

    #[tokio::test]
    async fn idle_connections_do_not_delay_a_stop() {
        let served = serve(LIMITS).await;
        let mut idle = served.connect().await.unwrap();
        ask(&mut idle).await.unwrap();
        served.stop.send(true).unwrap();
        timeout(LONG, served.task).await.expect("it stops").unwrap();
        closed(idle).await;
    }
}

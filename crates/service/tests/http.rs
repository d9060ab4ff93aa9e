//! The HTTP client and servers of the machine: plain, with TLS, slow, talkative, absent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, Uri};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::ServerName;
use trishanku_service::error::chain;
use trishanku_service::http::{Client, ClientBuilder, HttpError};
use trishanku_service::tls::{Certificates, ClientTls, Files};

/// The body of `/large`.
const LARGE: usize = 100;

fn pages() -> Router {
    Router::new()
        .route("/api/host", get(async |headers: HeaderMap| format!("{:?}", headers.get(header::HOST))))
        .route("/api/echo", post(async |body: String| body))
        .route("/api/moved", get(async || (StatusCode::FOUND, [(header::LOCATION, "/api/host")])))
        .route("/api/never", get(std::future::pending::<String>))
        .route("/api/large", get(async || "x".repeat(LARGE)))
}

/// A server on a loopback port that counts its connections.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(certificates: Option<Certificates>) -> Self {
        let inner = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let behind = inner.local_addr().expect("loopback has free ports");
        tokio::spawn(async { axum::serve(inner, pages()).await });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let (port, connections) =
            (listener.local_addr().expect("loopback has free ports").port(), Arc::new(AtomicUsize::new(0)));
        let (counted, certificates) = (connections.clone(), certificates.map(Arc::new));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let certificates = certificates.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(behind).await?;
                    match certificates {
                        None => copy_bidirectional(&mut stream, &mut server).await,
                        Some(certificates) => {
                            let mut stream = TlsAcceptor::from(certificates.current()).accept(stream).await?;
                            copy_bidirectional(&mut stream, &mut server).await
                        }
                    }
                });
            }
        });
        Self { port, connections }
    }

    fn at(&self, scheme: &str) -> ClientBuilder {
        let url = format!("{scheme}://127.0.0.1:{}/api", self.port);
        Client::builder(url.parse().expect("it is a URL")).within(Duration::from_secs(20))
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn the_response_is_returned_whatever_its_status_and_redirects_are_not_followed() {
    let server = Server::start(None).await;
    let client = server.at("http").build();
    let found = client.get("/host").await.unwrap();
    assert_eq!(found.body(), &format!("Some(\"127.0.0.1:{}\")", server.port));
    assert_eq!(client.get("/nothing").await.unwrap().status(), StatusCode::NOT_FOUND);
    let moved = client.get("/moved").await.unwrap();
    assert_eq!(
        (moved.status(), &moved.headers()[header::LOCATION]),
        (StatusCode::FOUND, &"/api/host".parse().unwrap())
    );
    let request = Request::post("/echo").body(Bytes::from_static(b"twice")).unwrap();
    assert_eq!(client.send(request).await.unwrap().body(), "twice");
}

#[tokio::test]
async fn each_request_has_a_connection_unless_they_are_kept() {
    let server = Server::start(None).await;
    for (client, expected) in [(server.at("http").build(), 3), (server.at("http").keep_connections().build(), 1)] {
        let before = server.connections();
        for _ in 0..3 {
            assert!(client.get("/host").await.unwrap().status().is_success());
        }
        assert_eq!(server.connections() - before, expected);
    }
}

#[tokio::test]
async fn a_request_ends_at_its_limits() {
    let server = Server::start(None).await;
    let error = server.at("http").within(Duration::from_millis(50)).build().get("/never").await.unwrap_err();
    assert_eq!(error.to_string(), "no response within 50ms");
    let error = server.at("http").at_most(LARGE - 1).build().get("/large").await.unwrap_err();
    assert_eq!(error.to_string(), "the response has more than 99 bytes");
    let whole = server.at("http").at_most(LARGE).build().get("/large").await.unwrap();
    assert_eq!(whole.body().len(), LARGE);
}

#[tokio::test]
async fn a_closed_port_and_a_server_without_http_are_different_errors() {
    // A bound port without a listener: connections are refused, and no other process can use the port.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = bound.local_addr().unwrap().port();
    let url = |port: u16| format!("http://127.0.0.1:{port}").parse::<Uri>().unwrap();
    let error = Client::builder(url(port)).build().get("/").await.unwrap_err();
    assert!(matches!(error, HttpError::Connect(_)), "{error:?}");
    assert!(chain(&error).contains("refused"), "{}", chain(&error));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move { drop(listener.accept().await) });
    let error = Client::builder(url(port)).build().get("/").await.unwrap_err();
    assert!(matches!(error, HttpError::Response(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_is_trusted_by_its_authority_and_under_the_name_in_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let files = Files { cert: folder.path().join("crt"), key: folder.path().join("key"), trusted_ca: None };
    let made = rcgen::generate_simple_self_signed(["gitcd.test".to_owned()]).unwrap();
    std::fs::write(&files.cert, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let server = Server::start(Some(Certificates::load(files, &[]).unwrap())).await;
    let name = || ServerName::try_from("gitcd.test").unwrap();
    let trusted = || ClientTls::new().authorities(made.cert.pem().as_bytes()).unwrap().config();
    let trusting = server.at("https").tls(trusted()).server_name(name()).build();
    assert!(trusting.get("/host").await.unwrap().status().is_success());
    let others = [
        server.at("https").build(),
        server.at("https").tls(trusted()).build(),
        server.at("https").tls(ClientTls::new().system_authorities().config()).server_name(name()).build(),
    ];
    for client in others {
        let error = client.get("/host").await.unwrap_err();
        assert!(matches!(error, HttpError::Tls(_)), "{error:?}");
        assert!(chain(&error).contains("certificate"), "{}", chain(&error));
    }
}

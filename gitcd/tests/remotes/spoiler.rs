//! A proxy between a follower and a host that tampers with responses.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use parking_lot::Mutex;

/// How to tamper with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoil {
    /// Pass it on unchanged.
    Nothing,
    /// Answer every request with an HTML page.
    Page,
    /// Replace the body with noise, keeping the content type.
    Noise,
    /// Cut a pack in the middle, together with the connection.
    Cut,
    /// Truncate a pack in the middle, as if it were complete.
    Ended,
    /// Flip a bit of a pack.
    Flipped,
    /// Replace a pack with a valid empty one.
    Empty,
    /// Answer with an HTTP error.
    Error,
}

/// A running proxy, stopped on drop.
pub(crate) struct Spoiler {
    port: u16,
    spoil: Arc<Mutex<Spoil>>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Forward {
    client: reqwest::Client,
    to: String,
    spoil: Arc<Mutex<Spoil>>,
}

impl Spoiler {
    /// Starts a proxy for the host at a port of localhost.
    pub(crate) async fn before(port: u16) -> Self {
        let _chosen = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port exists");
        let spoil = Arc::new(Mutex::new(Spoil::Nothing));
        let to = format!("http://127.0.0.1:{port}");
        let forward = Forward { client: reqwest::Client::new(), to, spoil: Arc::clone(&spoil) };
        let own = listener.local_addr().expect("the listener is bound").port();
        let app = axum::Router::new().fallback(answer).with_state(forward);
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.expect("the proxy can serve") });
        Self { port: own, spoil, serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/up.git", self.port)
    }

    pub(crate) fn set(&self, spoil: Spoil) {
        *self.spoil.lock() = spoil;
    }
}

impl Drop for Spoiler {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(State(forward): State<Forward>, request: Request) -> Response {
    let spoil = *forward.spoil.lock();
    match spoil {
        Spoil::Page => return ([("content-type", "text/html")], "<html>Please log in.</html>").into_response(),
        Spoil::Error => return StatusCode::BAD_GATEWAY.into_response(),
        _ => {}
    }
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("the request body is readable");
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    headers.remove("host");
    let sent = forward.client.request(parts.method, format!("{}{path}", forward.to)).headers(headers).body(body);
    let Ok(response) = sent.send().await else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, mut headers) = (response.status(), response.headers().clone());
    for name in ["transfer-encoding", "content-length", "connection"] {
        headers.remove(name);
    }
    if headers.get("content-type").is_some_and(|kind| kind == "text/event-stream") {
        let stream = futures::stream::unfold(response, async |mut response| {
            let chunk = response.chunk().await.ok()??;
            Some((Ok::<_, std::io::Error>(chunk), response))
        });
        return (status, headers, Body::from_stream(stream)).into_response();
    }
    let Ok(body) = response.bytes().await else { return StatusCode::BAD_GATEWAY.into_response() };
    (status, headers.clone(), spoilt(spoil, &headers, body)).into_response()
}

fn spoilt(spoil: Spoil, headers: &HeaderMap, body: Bytes) -> Body {
    let is_git = headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/x-git"));
    if spoil == Spoil::Noise && is_git {
        let mut noise = vec![0; 100];
        rand::fill(&mut noise[..]);
        // A pkt-line starts with hexadecimal digits, so this is none.
        noise[0] = b'!';
        return Body::from(noise);
    }
    let Some(pack) = body.windows(4).position(|word| word == b"PACK") else { return Body::from(body) };
    let middle = pack + (body.len() - pack) / 2;
    match spoil {
        Spoil::Cut => {
            let half = Ok(body.slice(..middle));
            let cut = Err(std::io::Error::other("cut"));
            Body::from_stream(futures::stream::iter([half, cut]).boxed())
        }
        Spoil::Ended => Body::from(body.slice(..middle)),
        Spoil::Flipped => {
            let mut flipped = body.to_vec();
            flipped[middle] ^= 1;
            Body::from(flipped)
        }
        Spoil::Empty => {
            let pack = b"PACK\0\0\0\x02\0\0\0\0\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e";
            let mut sent = b"000dpackfile\n".to_vec();
            sent.extend(format!("{:04x}\x01", 5 + pack.len()).into_bytes());
            sent.extend(pack);
            sent.extend(b"0000");
            Body::from(sent)
        }
        _ => Body::from(body),
    }
}

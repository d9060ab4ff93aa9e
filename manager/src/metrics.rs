//! Serves `/metrics` over TLS to authorized clients, as in kubebuilder projects.
//!
//! Clients send a service account token. A `TokenReview` authenticates it, and a `SubjectAccessReview` checks that its
//! user may `get` the path `/metrics`. Results are cached, so that scrapes need no further requests.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use trishanku_framework::metrics::Metrics;
use trishanku_framework::serve::figures;
use trishanku_service::tls;

/// How long a result is cached, as in controller-runtime.
const ALLOWED: Duration = Duration::from_mins(1);
const DENIED: Duration = Duration::from_secs(10);
/// Limits the memory that clients with random tokens can use.
const MOST_ANSWERS: usize = 1_000;
/// Limits the number of idle connections.
const MOST_CONNECTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of the serving certificate.
pub(crate) enum Certificates {
    /// `tls.crt` and `tls.key` in a folder, reloaded when they change.
    Folder(tls::Certificates),
    /// A self-signed certificate for the lifetime of the process.
    Own(Arc<ServerConfig>),
}

impl Certificates {
    /// Uses the certificate in a folder, or creates one.
    pub(crate) fn new(folder: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(folder) = folder {
            let files = tls::Files { cert: folder.join("tls.crt"), key: folder.join("tls.key"), trusted_ca: None };
            return Ok(Self::Folder(tls::Certificates::load(files, &[]).context("--metrics-cert-path")?));
        }
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "manager".to_owned());
        let made = rcgen::generate_simple_self_signed([host, "localhost".to_owned()]).context("self-signing failed")?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .context("self-signing failed")?;
        Ok(Self::Own(Arc::new(config)))
    }

    /// Returns the TLS configuration for the next connection. Blocks: reads the files.
    fn current(&self) -> Arc<ServerConfig> {
        match self {
            Self::Own(config) => config.clone(),
            Self::Folder(certificates) => certificates.current(),
        }
    }
}

/// Authorizes requests for metrics.
struct Guard {
    client: Client,
    answers: Mutex<HashMap<[u8; 32], (Instant, StatusCode)>>,
}

impl Guard {
    async fn ask(&self, token: &str) -> kube::Result<StatusCode> {
        let parameters = PostParams::default();
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviewed = Api::<TokenReview>::all(self.client.clone()).create(&parameters, &review).await?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(StatusCode::UNAUTHORIZED);
        };
        let path = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(path),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let reviewed = Api::<SubjectAccessReview>::all(self.client.clone()).create(&parameters, &review).await?;
        let is_allowed = reviewed.status.is_some_and(|status| status.allowed);
        Ok(if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }

    async fn look(&self, token: &str) -> kube::Result<StatusCode> {
        // Only hashes of tokens are kept.
        let fingerprint: [u8; 32] = Sha256::digest(token).into();
        let counts =
            |at: &Instant, code: StatusCode| at.elapsed() < if code == StatusCode::OK { ALLOWED } else { DENIED };
        if let Some((at, code)) = self.answers.lock().get(&fingerprint)
            && counts(at, *code)
        {
            return Ok(*code);
        }
        let code = self.ask(token).await?;
        let mut answers = self.answers.lock();
        answers.retain(|_, (at, code)| counts(at, *code));
        if answers.len() < MOST_ANSWERS {
            answers.insert(fingerprint, (Instant::now(), code));
        }
        Ok(code)
    }
}

async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let token =
        request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let Some(token) = token else {
        let how = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, how, "a service account token is required\n").into_response();
    };
    match guard.look(token).await {
        Ok(StatusCode::OK) => next.run(request).await,
        Ok(StatusCode::FORBIDDEN) => (StatusCode::FORBIDDEN, "forbidden: requires `get` on /metrics\n").into_response(),
        Ok(code) => (code, "the token is not valid\n").into_response(),
        Err(error) => {
            tracing::warn!(%error, "cannot authenticate a request for metrics");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// Serves metrics for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, certificates: Certificates, metrics: &Metrics, client: Client) {
    let guard = Arc::new(Guard { client, answers: Mutex::default() });
    let pages = figures(metrics).layer(from_fn_with_state(guard, guarded));
    let (certificates, places) = (Arc::new(certificates), Arc::new(Semaphore::new(MOST_CONNECTIONS)));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (pages, certificates) = (pages.clone(), certificates.clone());
        tokio::spawn(async move {
            if let Err(error) = converse(stream, certificates, pages).await {
                tracing::debug!(%error, "a connection for metrics failed");
            }
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, certificates: Arc<Certificates>, pages: Router) -> anyhow::Result<()> {
    let config = tokio::task::spawn_blocking(move || certificates.current()).await?;
    let acceptor = TlsAcceptor::from(config);
    let stream = timeout(PATIENCE, acceptor.accept(stream)).await.context("no handshake")??;
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(pages)).await?;
    Ok(())
}

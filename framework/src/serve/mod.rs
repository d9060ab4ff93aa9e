//! HTTP endpoints for probes, scrapes and debugging.
//!
//! ```no_run
//! use trishanku_framework::Manager;
//! use trishanku_framework::serve::{Addresses, Server};
//!
//! # async fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
//! let addresses = Addresses { probes: ":8081".parse()?, metrics: ":8080".parse()?, ..Addresses::default() };
//! let server = Server::bind(&addresses).await?;
//! Manager::new(config).serve(server).run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! | address | path | response |
//! |---|---|---|
//! | `probes` | `/livez`, `/healthz` | 200 `ok`, or 500 with the controllers that have not reported for a minute |
//! | | `/readyz` | 200 `ok`, or 500 with what is not ready |
//! | | with `?verbose` | every check, in Kubernetes' format; `?exclude=NAME` skips one |
//! | | `/livez/NAME`, `/healthz/NAME`, `/readyz/NAME` | one check: `start`, `cache/KIND`; `controller/NAME` |
//! | `metrics` | `/metrics` | the [metrics](crate::metrics), in Prometheus' text format, or as `OpenMetrics` if that is preferred |
//! | `debug` | `GET /debug/log` | the log filter |
//! | | `PUT /debug/log` | sets the log filter to the body: `curl -X PUT -d debug …`; 400 explains what is wrong with it |
//!
//! All addresses are off by default. Probes and metrics are open to every client that can connect, and contain no more than
//! names. [`Server::secure_metrics`] serves metrics over TLS, and only to authorized clients. The address for debugging must be on
//! loopback, and rejects web pages: in a pod it requires `kubectl exec` or `port-forward`, hence permission for that.
//!
//! Endpoints are served from the start of [`Manager::run`](crate::Manager::run) until everything has stopped.

mod access;
mod address;
mod connections;
#[cfg(feature = "telemetry")]
mod log;
mod probes;
mod scrape;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::from_fn_with_state;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use trishanku_service::tls;

use self::access::TokenReviewer;
pub use self::address::{Address, UnknownAddress};
pub(crate) use self::connections::{Limits, TlsConfig, TlsPort};
#[cfg(feature = "telemetry")]
pub(crate) use self::log::pages as log_pages;
use crate::health::Health;
use crate::metrics::Metrics;

/// How long requests in flight may take after everything else has stopped.
const GRACE: Duration = Duration::from_secs(1);
/// Limits of the port for secured metrics. Its clients are few, and every pod can connect.
const METRICS_LIMITS: Limits = Limits {
    connections: 64,
    connections_of_peer: 16,
    handshake: Duration::from_secs(10),
    request: Duration::from_secs(30),
    idle: Duration::from_secs(10),
};

/// Listen addresses of the endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// For `/livez`, `/readyz` and `/healthz`.
    pub probes: Address,
    /// For `/metrics`.
    pub metrics: Address,
    /// For `/debug/log`; must be on loopback. Without the feature `telemetry`, there is no page.
    pub debug: Address,
}

/// Returns a router with `/metrics`, for programs that serve it themselves, to clients of their choice.
pub fn metrics_router(metrics: &Metrics) -> Router {
    scrape::pages(metrics)
}

/// Why an endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The port is in use, or the address is not this machine's.
    #[error("cannot listen on {address} for {what}")]
    Listen {
        /// The endpoints.
        what: &'static str,
        /// The address.
        address: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Every client that can connect can change the log filter.
    #[error("the debug address must be on loopback, such as 127.0.0.1:6060, not {0}")]
    NotLoopback(String),
    /// The certificate cannot be used, or none can be created.
    #[error("cannot serve metrics over TLS")]
    Certificate(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Bound ports. No request is answered before the [manager](crate::Manager::serve) runs.
pub struct Server {
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    debug: Option<TcpListener>,
    /// Of metrics, if they are secured.
    tls: Option<TlsConfig>,
}

impl Server {
    /// Binds the ports. Call it in the runtime of the manager.
    ///
    /// # Errors
    /// [`BindError`] names the address.
    pub async fn bind(addresses: &Addresses) -> Result<Self, BindError> {
        if !addresses.debug.is_loopback() {
            return Err(BindError::NotLoopback(addresses.debug.to_string()));
        }
        let listen = async |what, address: &Address| {
            let listener = address.listen().await;
            listener.map_err(|source| BindError::Listen { what, address: address.to_string(), source })
        };
        Ok(Self {
            probes: listen("probes", &addresses.probes).await?,
            metrics: listen("metrics", &addresses.metrics).await?,
            debug: listen("debugging", &addresses.debug).await?,
            tls: None,
        })
    }

    /// Serves metrics over TLS, and only to clients with a token whose user may `get` the path `/metrics`, as the projects of
    /// kubebuilder do. Does nothing if no metrics are served.
    ///
    /// The certificate is that in the files `tls.crt` and `tls.key` of `folder`, which are read for each connection, so they may
    /// change; without a folder, it is self-signed, for the lifetime of the process.
    ///
    /// A `TokenReview` authenticates a token, and a `SubjectAccessReview` authorizes its user: the program needs the permission to
    /// `create` both. The answers are kept for a minute, refusals for ten seconds; of the tokens, only hashes are. A client gets 401
    /// with a challenge (`WWW-Authenticate`) without a valid token, and 403 without the right. Requests with one token share its review,
    /// and four tokens at most are reviewed at a time: a further one waits for ten seconds, and gets 503 with `Retry-After` then.
    ///
    /// # Errors
    /// [`BindError::Certificate`]: the files cannot be used.
    pub fn secure_metrics(mut self, folder: Option<&Path>) -> Result<Self, BindError> {
        if self.metrics.is_some() {
            self.tls = Some(certificate(folder).map_err(BindError::Certificate)?);
        }
        Ok(self)
    }

    /// Returns the address of probes, if they are served.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns the address of metrics, if they are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Returns the address for debugging, if it is served.
    pub fn debug(&self) -> Option<SocketAddr> {
        self.debug.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Answers requests. `client` asks about tokens, also without the lease: a replica that waits for it is scraped, too.
    pub(crate) fn start(self, health: &Health, metrics: &Metrics, client: &Client, debug: Router) -> Serving {
        let mut serving = Serving { tasks: JoinSet::new(), stop: watch::channel(false).0 };
        let (mut open, scraped) = (self.metrics, scrape::pages(metrics));
        if let Some((config, listener)) = self.tls.and_then(|tls| Some((tls, open.take()?))) {
            let reviewer = Arc::new(TokenReviewer::new(client.clone()));
            let pages = scraped.clone().layer(from_fn_with_state(reviewer, access::check));
            let port = TlsPort { listener, what: "metrics", config, limits: METRICS_LIMITS };
            serving.tasks.spawn(port.serve(pages, serving.stop.subscribe()));
        }
        let pages = [(self.probes, probes::pages(health)), (open, scraped), (self.debug, debug)];
        for (listener, pages) in pages.into_iter().filter_map(|(listener, pages)| Some((listener?, pages))) {
            let mut stopped = serving.stop.subscribe();
            serving.tasks.spawn(async move {
                let stopped = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
                // It continues after connection errors, and has no others.
                let _served = axum::serve(listener, pages).with_graceful_shutdown(stopped).await;
            });
        }
        serving
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("probes", &self.probes)
            .field("metrics", &self.metrics)
            .field("debug", &self.debug)
            .finish_non_exhaustive()
    }
}

/// Returns the TLS configuration with the certificate in a folder, or with one of our own.
fn certificate(folder: Option<&Path>) -> Result<TlsConfig, Box<dyn std::error::Error + Send + Sync>> {
    if let Some(folder) = folder {
        let files = tls::Files { cert: folder.join("tls.crt"), key: folder.join("tls.key"), trusted_ca: None };
        let certificates = tls::Certificates::load(files, &[])?;
        return Ok(Arc::new(move || Some(certificates.current())));
    }
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "manager".to_owned());
    let made = rcgen::generate_simple_self_signed([host, "localhost".to_owned()])?;
    let config = tls::server_config(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes(), &[])?;
    Ok(Arc::new(move || Some(config.clone())))
}

/// Endpoints that are served until this is dropped.
pub(crate) struct Serving {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Serving {
    /// Answers requests in flight, and accepts no more.
    pub(crate) async fn end(mut self) {
        let _nobody_serves = self.stop.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _in_time = tokio::time::timeout(GRACE, all).await;
    }
}

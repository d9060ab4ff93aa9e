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
//! names. The address for debugging must be on loopback, and rejects web pages: in a pod it requires `kubectl exec` or
//! `port-forward`, hence permission for that.
//!
//! Endpoints are served from the start of [`Manager::run`](crate::Manager::run) until everything has stopped.

mod address;
#[cfg(feature = "telemetry")]
mod log;
mod probes;
mod scrape;

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::address::{Address, UnknownAddress};
#[cfg(feature = "telemetry")]
pub(crate) use self::log::pages as log_pages;
use crate::health::Health;
use crate::metrics::Metrics;

/// How long requests in flight may take after everything else has stopped.
const GRACE: Duration = Duration::from_secs(1);

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
pub fn figures(metrics: &Metrics) -> Router {
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
}

/// Bound ports. No request is answered before the [manager](crate::Manager::serve) runs.
#[derive(Debug)]
pub struct Server {
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    debug: Option<TcpListener>,
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
        })
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

    pub(crate) fn start(self, health: &Health, metrics: &Metrics, debug: Router) -> Serving {
        let pages = [(self.probes, probes::pages(health)), (self.metrics, scrape::pages(metrics)), (self.debug, debug)];
        let mut serving = Serving { tasks: JoinSet::new(), stop: watch::channel(false).0 };
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

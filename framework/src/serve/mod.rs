//! Pages for probes, for scrapes and for whoever debugs.
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
//! | address | path | answer |
//! |---|---|---|
//! | `probes` | `/livez`, `/healthz` | 200 `ok`, or 500 with who has shown no sign of life for a minute |
//! | | `/readyz` | 200 `ok`, or 500 with what is not ready |
//! | | with `?verbose` | every check, as Kubernetes writes them; `?exclude=NAME` leaves one out |
//! | | `/livez/NAME`, `/healthz/NAME`, `/readyz/NAME` | one check: `start`, `cache/KIND`; `controller/NAME` |
//! | `metrics` | `/metrics` | the [figures](crate::metrics), as plain text or for those who ask for it as `OpenMetrics` |
//! | `debug` | `GET /debug/log` | what is logged |
//! | | `PUT /debug/log` | logs by the filter in the body from now on: `curl -X PUT -d debug …`; 400 says what is wrong with it |
//!
//! Every address is off unless it is named. Probes and metrics are open to whoever reaches them, and tell nothing but names. The address for
//! debugging must be on loopback, and web pages are refused there: in a pod it takes `kubectl exec` or `port-forward`, so the permission for
//! that.
//!
//! The pages are there from the beginning of [`Manager::run`](crate::Manager::run) until everything has ended.

mod address;
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
use crate::health::Health;
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;

/// How long requests under way may take when everything else has ended.
const GRACE: Duration = Duration::from_secs(1);

/// Where pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Of `/livez`, `/readyz` and `/healthz`.
    pub probes: Address,
    /// Of `/metrics`.
    pub metrics: Address,
    /// Of `/debug/log`; on loopback.
    pub debug: Address,
}

/// The page with the figures, at `/metrics`, for those who serve it themselves: to whom they like.
pub fn figures(metrics: &Metrics) -> Router {
    scrape::pages(metrics)
}

/// Why there are no pages.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The port is somebody else's, or the address is not this machine's.
    #[error("cannot listen on {address} for {what}")]
    Listen {
        /// Which pages.
        what: &'static str,
        /// The address.
        address: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Whoever reaches it can change what is logged.
    #[error("the address for debugging must be on loopback, such as 127.0.0.1:6060, not {0}")]
    NotLoopback(String),
}

/// Ports that are taken; nobody answers before the [manager](crate::Manager::serve) runs.
#[derive(Debug)]
pub struct Server {
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    debug: Option<TcpListener>,
}

impl Server {
    /// Takes the ports. In the runtime in which the manager runs.
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

    /// Where probes are answered, if they are.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Where figures are scraped, if they are.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Where one debugs, if one may.
    pub fn debug(&self) -> Option<SocketAddr> {
        self.debug.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    pub(crate) fn start(self, health: &Health, metrics: &Metrics, telemetry: Option<&Telemetry>) -> Serving {
        let pages = [
            (self.probes, probes::pages(health)),
            (self.metrics, scrape::pages(metrics)),
            (self.debug, telemetry.map_or_else(Router::new, log::pages)),
        ];
        let mut serving = Serving { tasks: JoinSet::new(), stop: watch::channel(false).0 };
        for (listener, pages) in pages.into_iter().filter_map(|(listener, pages)| Some((listener?, pages))) {
            let mut stopped = serving.stop.subscribe();
            serving.tasks.spawn(async move {
                let stopped = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
                // It goes on after errors of connections, and has no others.
                let _served = axum::serve(listener, pages).with_graceful_shutdown(stopped).await;
            });
        }
        serving
    }
}

/// Pages that are answered, until this is dropped.
pub(crate) struct Serving {
    tasks: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Serving {
    /// Answers what has been asked, and nothing more.
    pub(crate) async fn end(mut self) {
        let _nobody_serves = self.stop.send(true);
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _in_time = tokio::time::timeout(GRACE, all).await;
    }
}

//! Listeners for a host of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gitcd_net::listener::Listen;
use gitcd_net::listener::{Bound, Incoming, ListenError, Ports};
use gitcd_net::tls;
use gitcd_net::transport::{self, Transport};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Config, Host, StartError};

/// How long pushes and fetches may take to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Why a host does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The host itself cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A listener ended by itself.
    #[error("a listener has ended")]
    Ended,
}

/// A host that listens.
#[derive(Debug)]
pub struct Server {
    host: Host,
    addresses: Vec<SocketAddr>,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Takes the ports and starts the host. `tls` is for `https` listeners.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(config: Config, listen: &[Listen], tls: Option<tls::Files>) -> Result<Self, ServeError> {
        let bound = Ports::new(listen, tls)?.bind().await?;
        Ok(Self::start_on(config, bound).await?)
    }

    /// Starts the host on ports that were taken before.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_on(config: Config, bound: Vec<Bound>) -> Result<Self, StartError> {
        let host = Host::start(config).await?;
        let (stop, stopped) = watch::channel(false);
        let (mut addresses, mut listeners) = (Vec::new(), JoinSet::new());
        for (listener, certificates) in bound {
            addresses.extend(listener.local_addr());
            let incoming = Incoming::new(listener, certificates, Arc::default());
            let (routes, stopped) = (host.router(), stopped.clone());
            let answer = move |request: hyper::Request<hyper::body::Incoming>| {
                tower::ServiceExt::oneshot(routes.clone(), request.map(axum::body::Body::new))
            };
            listeners.spawn(transport::serve(incoming, Transport::default(), None, answer, stopped));
        }
        Ok(Self { host, addresses, listeners, stop })
    }

    /// Where it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits for a listener to end, which happens only if something is very wrong.
    pub async fn failed(&mut self) -> ServeError {
        self.listeners.join_next().await;
        ServeError::Ended
    }

    /// Takes no more requests, ends streams of events and waits a little for what is under way.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.host.stop(DRAIN).await;
        let ended = async { while self.listeners.join_next().await.is_some() {} };
        // Connections that are kept open without a request are not waited for.
        let _ended = tokio::time::timeout(Duration::from_secs(1), ended).await;
    }
}

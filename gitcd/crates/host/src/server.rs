//! A standalone host with its listeners.

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

/// How long running pushes and fetches may take after a stop.
const DRAIN: Duration = Duration::from_secs(10);

/// Why a host does not serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The host itself cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// It cannot listen on a port.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// A listener stopped by itself.
    #[error("a listener stopped unexpectedly")]
    Ended,
}

/// A host with its listeners.
#[derive(Debug)]
pub struct Server {
    host: Host,
    addresses: Vec<SocketAddr>,
    listeners: JoinSet<()>,
    stop: watch::Sender<bool>,
}

impl Server {
    /// Binds the ports and starts the host. `tls` is for `https` listeners.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(config: Config, listen: &[Listen], tls: Option<tls::Files>) -> Result<Self, ServeError> {
        let bound = Ports::new(listen, tls)?.bind().await?;
        Ok(Self::start_on(config, bound).await?)
    }

    /// Starts the host on ports that are already bound.
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

    /// Returns the bound addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until a listener stops by itself, which is always a failure.
    pub async fn failed(&mut self) -> ServeError {
        self.listeners.join_next().await;
        ServeError::Ended
    }

    /// Stops accepting requests, ends event streams and waits up to ten seconds for running requests.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.host.stop(DRAIN).await;
        let ended = async { while self.listeners.join_next().await.is_some() {} };
        // Idle keep-alive connections do not delay it.
        let _ended = tokio::time::timeout(Duration::from_secs(1), ended).await;
    }
}

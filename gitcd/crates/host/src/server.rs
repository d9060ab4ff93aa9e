//! A standalone host with its listeners.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use gitcd_core::blocking;
use gitcd_net::listener::{Bound, Listen, ListenError, Ports, SharedSocket};
use gitcd_net::tls;
use gitcd_net::transport::{self, Transport};
use tokio::sync::watch;
use tokio::task::JoinHandle;

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
    listeners: FuturesUnordered<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// The task of a listener. It is started again after a panic, on the same socket.
const LISTENER: &str = "host-listener";

impl Server {
    /// Binds the ports and starts the host. `tls` is for `https` listeners.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn start(config: Config, listen: &[Listen], tls: Option<tls::Files>) -> Result<Self, ServeError> {
        let listen = listen.to_vec();
        let ports = blocking::run("load the certificates", move || Ports::new(&listen, tls)).await;
        let bound = ports.map_err(StartError::from)??.bind().await?;
        Ok(Self::start_on(config, bound).await?)
    }

    /// Starts the host on ports that are already bound.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_on(config: Config, bound: Vec<Bound>) -> Result<Self, StartError> {
        Self::starting(config, bound).await
    }

    /// Boxed, so that this crate compiles it, and not each program that awaits it.
    #[inline(never)]
    fn starting(config: Config, bound: Vec<Bound>) -> BoxFuture<'static, Result<Self, StartError>> {
        Self::listen(config, bound).boxed()
    }

    async fn listen(config: Config, bound: Vec<Bound>) -> Result<Self, StartError> {
        let supervisor = config.supervisor.clone();
        let host = Host::start(config).await?;
        let (stop, stopped) = watch::channel(false);
        let addresses = bound.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect();
        let sockets: Result<Vec<_>, _> = bound.into_iter().map(SharedSocket::new).collect();
        let listeners = sockets.map_err(StartError::Socket)?.into_iter().map(|socket| {
            let (host, stop) = (host.clone(), stopped.clone());
            supervisor.spawn(LISTENER, stopped.clone(), move || serve(host.clone(), socket.clone(), stop.clone()))
        });
        let listeners = listeners.collect();
        Ok(Self { host, addresses, listeners, stop })
    }

    /// Returns the bound addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits until a listener stops by itself, which is always a failure.
    pub async fn failed(&mut self) -> ServeError {
        self.listeners.next().await;
        ServeError::Ended
    }

    /// Stops accepting requests, ends event streams and waits up to ten seconds for running requests.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        self.host.stop(DRAIN).await;
        let ended = async { while self.listeners.next().await.is_some() {} };
        // Idle keep-alive connections do not delay it.
        let _ended = tokio::time::timeout(Duration::from_secs(1), ended).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listeners.iter().for_each(JoinHandle::abort);
    }
}

/// Serves the host on a socket until `stopped`.
async fn serve(host: Host, socket: SharedSocket, stopped: watch::Receiver<bool>) {
    let routes = host.router();
    let answer = move |request: hyper::Request<hyper::body::Incoming>| {
        tower::ServiceExt::oneshot(routes.clone(), request.map(axum::body::Body::new))
    };
    let settings = Transport { connections: host.connections(), ..Transport::default() };
    transport::serve_on((socket, Arc::default()), settings, answer, stopped).await;
}

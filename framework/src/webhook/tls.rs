//! TLS with a certificate that may change at any time.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::server::TlsStream;

use super::certificates::Pair;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Handshakes at a time.
const MOST_HANDSHAKES: usize = 256;
/// Time before the next attempt to accept a connection, if there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Pem(#[from] pem::Error),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The certificate for the next connection. Open connections keep those that they started with.
#[derive(Clone, Debug, Default)]
pub(super) struct Acceptor(Arc<RwLock<Option<Arc<ServerConfig>>>>);

impl Acceptor {
    pub(super) fn set(&self, pair: &Pair) -> Result<(), Unusable> {
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(config));
        Ok(())
    }

    pub(super) fn is_ready(&self) -> bool {
        self.current().is_some()
    }

    fn current(&self) -> Option<Arc<ServerConfig>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Connections whose handshake has succeeded. A client that is slow to shake hands does not delay others.
pub(super) struct TlsListener {
    address: io::Result<SocketAddr>,
    accepted: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    _accepting: JoinSet<()>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, acceptor: Acceptor) -> Self {
        let address = listener.local_addr();
        let (accept, accepted) = mpsc::channel(MOST_HANDSHAKES);
        let mut accepting = JoinSet::new();
        accepting.spawn(run(listener, acceptor, accept));
        Self { address, accepted, _accepting: accepting }
    }
}

async fn run(listener: TcpListener, acceptor: Acceptor, accept: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>) {
    let mut handshakes = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = handshakes.join_next() => {}
            connected = listener.accept(), if handshakes.len() < MOST_HANDSHAKES => match connected {
                Ok((stream, address)) => {
                    // Before there is a certificate, the connection is closed, and the apiserver tries again.
                    let Some(config) = acceptor.current() else { continue };
                    let accept = accept.clone();
                    handshakes.spawn(async move {
                        let handshake = TlsAcceptor::from(config).accept(stream);
                        if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await {
                            // Fails if the server has ended.
                            let _served = accept.send((stream, address)).await;
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection for webhooks");
                    tokio::time::sleep(PAUSE).await;
                }
            },
        }
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        match self.accepted.recv().await {
            Some(accepted) => accepted,
            // The task runs as long as this.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.address {
            Ok(address) => Ok(*address),
            Err(error) => Err(error.kind().into()),
        }
    }
}

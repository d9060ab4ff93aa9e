//! Connections as they come in, plain or with TLS, and who is at their other end.

mod ports;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer, X509Certificate};

pub use self::ports::{Bound, Listen, ListenError, Ports};

use crate::throttle::LogThrottle;
use crate::tls::Certificates;

/// A client that has not finished its handshake by then is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more file descriptors or memory for a connection.
const REST: Duration = Duration::from_millis(100);
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// Who is at the other end; the extensions of every request have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The common name in the client's certificate, which one of the trusted authorities has signed.
    pub name: Option<Arc<str>>,
}

/// Bytes that were read from and written to the connections of a server, as the application sees them: without TLS's own.
#[derive(Debug, Default)]
pub struct Network {
    /// From clients.
    pub received: AtomicU64,
    /// To clients.
    pub sent: AtomicU64,
}

/// A connection with a client.
#[derive(Debug)]
pub struct Connection {
    io: Io,
    peer: Peer,
    network: Arc<Network>,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Who is at the other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}

/// The connections of a listener, those with TLS after their handshake. Handshakes go on side by side: one that is slow or fails
/// holds up no other. Dropping it closes the listener.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    network: Arc<Network>,
    handshakes: JoinSet<Result<(Io, Peer), (SocketAddr, io::Error)>>,
    /// When to try again after the system could not give us a connection.
    resume_at: Option<Instant>,
    complaints: LogThrottle,
    /// About clients whose handshakes fail.
    handshake_complaints: Complaints,
}

impl Incoming {
    /// Takes connections from now on.
    pub fn new(listener: TcpListener, certificates: Option<Arc<Certificates>>, network: Arc<Network>) -> Self {
        Self {
            listener,
            certificates,
            network,
            handshakes: JoinSet::new(),
            resume_at: None,
            complaints: LogThrottle::every(COMPLAIN_EVERY),
            handshake_complaints: Complaints { throttle: LogThrottle::every(COMPLAIN_EVERY), unheard: 0 },
        }
    }

    /// The next connection. Whatever happens there will be one; nothing is lost if the caller stops to wait for it.
    pub async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                accepted = accept(&self.listener, self.resume_at) => match accepted {
                    Ok((stream, address)) => {
                        self.resume_at = None;
                        let Some(certificates) = &self.certificates else {
                            return plain(stream, address, self.network.clone());
                        };
                        without_delay(&stream);
                        self.handshakes.spawn(handshake(certificates.clone(), stream, address));
                    }
                    Err(error) => self.failed(&error),
                },
                Some(ended) = self.handshakes.join_next() => {
                    match ended {
                        Ok(Ok(connected)) => return self.connection(connected),
                        Ok(Err((address, error))) => self.handshake_complaints.about(address, &error),
                        // It was aborted, or it panicked, which the panic has said.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// Closes the listener. Gives the clients that the system has let in already, which would find their connections reset.
    /// Those that are about to shake hands are left out.
    pub fn close(self) -> Vec<Connection> {
        let mut rest = Vec::new();
        // Not by way of the runtime, which only knows of those that it was told of before.
        if self.certificates.is_none()
            && let Ok(listener) = self.listener.into_std()
        {
            while let Ok((stream, address)) = listener.accept() {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                rest.extend(stream.map(|stream| plain(stream, address, self.network.clone())));
            }
        }
        rest
    }

    fn connection(&self, (io, peer): (Io, Peer)) -> Connection {
        Connection { io, peer, network: self.network.clone() }
    }

    fn failed(&mut self, error: &io::Error) {
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        let now = Instant::now();
        self.resume_at = Some(now + REST);
        if self.complaints.admits(now) {
            tracing::warn!(%error, "cannot accept connections; retrying");
        }
    }
}

fn plain(stream: TcpStream, address: SocketAddr, network: Arc<Network>) -> Connection {
    without_delay(&stream);
    Connection { io: Io::Plain(stream), peer: Peer { address, name: None }, network }
}

fn without_delay(stream: &TcpStream) {
    // Fails only if the client has already gone, which reading from it will tell.
    let _ = stream.set_nodelay(true);
}

async fn accept(listener: &TcpListener, not_before: Option<Instant>) -> io::Result<(TcpStream, SocketAddr)> {
    if let Some(instant) = not_before {
        tokio::time::sleep_until(instant.into()).await;
    }
    listener.accept().await
}

async fn handshake(
    certificates: Arc<Certificates>,
    stream: TcpStream,
    address: SocketAddr,
) -> Result<(Io, Peer), (SocketAddr, io::Error)> {
    let failed = |error| (address, error);
    let config = tokio::task::spawn_blocking(move || certificates.current()).await;
    let config = config.map_err(|error| failed(io::Error::other(error)))?;
    let accepted = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
    let stream = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    let name = stream.get_ref().1.peer_certificates().and_then(|chain| common_name(chain.first()?));
    Ok((Io::Tls(Box::new(stream)), Peer { address, name }))
}

/// Says which clients cannot be spoken with, and why: the first, and then one in a while with how many others there were.
#[derive(Debug)]
struct Complaints {
    throttle: LogThrottle,
    unheard: u64,
}

impl Complaints {
    fn about(&mut self, address: SocketAddr, error: &io::Error) {
        if self.throttle.admits(Instant::now()) {
            let others = std::mem::take(&mut self.unheard);
            tracing::warn!(%address, %error, others, "TLS handshake failed");
        } else {
            self.unheard += 1;
            tracing::debug!(%address, %error, "TLS handshake failed");
        }
    }
}

fn common_name(certificate: &[u8]) -> Option<Arc<str>> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let name = certificate.subject().iter_common_name().next()?.as_str().ok()?;
    (!name.is_empty()).then(|| name.into())
}

impl Connection {
    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.network.sent.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Io::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        self.network.received.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Io::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.count(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Io::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(stream) => stream.is_write_vectored(),
            Io::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Io::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

//! Incoming connections, plain or with TLS, and their peers.

mod limits;
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

pub use self::limits::Limits;
use self::limits::{Admission, Admitted, Place};
pub use self::ports::{Bound, Listen, ListenError, Ports, SharedSocket, Socket};

use crate::throttle::LogThrottle;
use crate::tls::Certificates;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Delay before accepting again after an error, such as too many open files.
const REST: Duration = Duration::from_millis(100);
const COMPLAIN_EVERY: Duration = Duration::from_mins(1);

/// The client of a connection; in the extensions of every request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The common name in the client's certificate, which the TLS handshake has verified.
    pub name: Option<Arc<str>>,
}

/// Byte counters of a server's connections; TLS overhead is not counted.
#[derive(Debug, Default)]
pub struct Network {
    /// Bytes received from clients.
    pub received: AtomicU64,
    /// Bytes sent to clients.
    pub sent: AtomicU64,
    /// Counters of the connections themselves.
    pub connections: Connections,
}

/// Counters of the connections of a server's listeners.
#[derive(Debug, Default)]
pub struct Connections {
    /// Open connections, also those in a TLS handshake.
    pub open: AtomicU64,
    /// The sum of the listeners' limits.
    pub limit: AtomicU64,
    /// Connections that were closed because their address had reached its limit.
    pub refused: AtomicU64,
    /// How often a listener reached its limit, so that new clients had to wait.
    pub stalls: AtomicU64,
    /// Connections that were closed because the client sent nothing, or no request for a long time.
    pub timed_out: AtomicU64,
}

/// A connection from a client.
#[derive(Debug)]
pub struct Connection {
    io: Io,
    peer: Peer,
    network: Arc<Network>,
    /// `None` for a connection that was waiting when the listener closed.
    _admitted: Option<Admitted>,
}

#[derive(Debug)]
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connection {
    /// Returns the client.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Counts that the connection is closed because the client is silent.
    pub(crate) fn timed_out(&self) {
        self.network.connections.timed_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection after its handshake.
type Connected = (Io, Peer, Admitted);

/// The stream of connections that a listener accepts; TLS connections come after their handshake. Handshakes run concurrently,
/// so a slow or failing one delays no other. Dropping it closes the listener.
#[derive(Debug)]
pub struct Incoming {
    listener: TcpListener,
    certificates: Option<Arc<Certificates>>,
    network: Arc<Network>,
    admission: Admission,
    handshakes: JoinSet<Result<Connected, (SocketAddr, io::Error)>>,
    /// When to accept again after an error.
    resume_at: Option<Instant>,
    complaints: LogThrottle,
    /// Log of failed handshakes.
    handshake_complaints: Complaints,
}

impl Incoming {
    /// Accepts connections on `listener`, with TLS if there are `certificates`, up to the default limits; counts their bytes in
    /// `network`.
    pub fn new(listener: TcpListener, certificates: Option<Arc<Certificates>>, network: Arc<Network>) -> Self {
        Self::limited(listener, certificates, network, Limits::default())
    }

    /// Does the same with other limits.
    pub fn limited(
        listener: TcpListener,
        certificates: Option<Arc<Certificates>>,
        network: Arc<Network>,
        limits: Limits,
    ) -> Self {
        Self {
            listener,
            certificates,
            admission: Admission::new(limits, network.clone()),
            network,
            handshakes: JoinSet::new(),
            resume_at: None,
            complaints: LogThrottle::every(COMPLAIN_EVERY),
            handshake_complaints: Complaints { throttle: LogThrottle::every(COMPLAIN_EVERY), suppressed: 0 },
        }
    }

    /// Returns the next connection. Logs errors and retries. Cancel-safe: dropping the future loses no connection.
    pub async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                accepted = accept(&self.listener, self.resume_at, &self.admission) => match accepted {
                    Ok((place, stream, address)) => {
                        self.resume_at = None;
                        let Some(admitted) = self.admission.admit(place, address.ip()) else {
                            self.refused(address);
                            continue;
                        };
                        let Some(certificates) = &self.certificates else {
                            return plain(stream, address, self.network.clone(), Some(admitted));
                        };
                        without_delay(&stream);
                        self.handshakes.spawn(handshake(certificates.clone(), stream, address, admitted));
                    }
                    Err(error) => self.failed(&error),
                },
                Some(ended) = self.handshakes.join_next() => {
                    match ended {
                        Ok(Ok(connected)) => return self.connection(connected),
                        Ok(Err((address, error))) => {
                            if error.kind() == io::ErrorKind::TimedOut {
                                self.network.connections.timed_out.fetch_add(1, Ordering::Relaxed);
                            }
                            self.handshake_complaints.about(address, &error);
                        }
                        // The task panicked; the panic hook has reported it.
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// Closes the listener. Returns the connections in the kernel's backlog, which would otherwise be reset; with TLS it returns
    /// none, because they have not finished a handshake.
    pub fn close(self) -> Vec<Connection> {
        let mut rest = Vec::new();
        // Not with tokio's `accept`, which only knows of connections that epoll has reported.
        if self.certificates.is_none()
            && let Ok(listener) = self.listener.into_std()
        {
            while let Ok((stream, address)) = listener.accept() {
                let stream = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
                rest.extend(stream.map(|stream| plain(stream, address, self.network.clone(), None)));
            }
        }
        rest
    }

    fn connection(&self, (io, peer, admitted): Connected) -> Connection {
        Connection { io, peer, network: self.network.clone(), _admitted: Some(admitted) }
    }

    fn refused(&mut self, address: SocketAddr) {
        if self.complaints.admits(Instant::now()) {
            let connections = self.admission.limits().per_address;
            tracing::warn!(%address, connections, "closed a connection: its address has reached the limit of connections");
        }
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

fn plain(stream: TcpStream, address: SocketAddr, network: Arc<Network>, admitted: Option<Admitted>) -> Connection {
    without_delay(&stream);
    Connection { io: Io::Plain(stream), peer: Peer { address, name: None }, network, _admitted: admitted }
}

fn without_delay(stream: &TcpStream) {
    // Fails only if the client has disconnected; the next read returns that error.
    let _ = stream.set_nodelay(true);
}

async fn accept(
    listener: &TcpListener,
    not_before: Option<Instant>,
    admission: &Admission,
) -> io::Result<(Place, TcpStream, SocketAddr)> {
    if let Some(instant) = not_before {
        tokio::time::sleep_until(instant.into()).await;
    }
    let place = admission.place().await;
    let (stream, address) = listener.accept().await?;
    Ok((place, stream, address))
}

async fn handshake(
    certificates: Arc<Certificates>,
    stream: TcpStream,
    address: SocketAddr,
    admitted: Admitted,
) -> Result<Connected, (SocketAddr, io::Error)> {
    let failed = |error| (address, error);
    let config = tokio::task::spawn_blocking(move || certificates.current()).await;
    let config = config.map_err(|error| failed(io::Error::other(error)))?;
    let accepted = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
    let stream = accepted.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(failed)?;
    let name = stream.get_ref().1.peer_certificates().and_then(|chain| common_name(chain.first()?));
    Ok((Io::Tls(Box::new(stream)), Peer { address, name }, admitted))
}

/// Logs failed handshakes: the first, and then one per interval with the number of suppressed ones.
#[derive(Debug)]
struct Complaints {
    throttle: LogThrottle,
    suppressed: u64,
}

impl Complaints {
    fn about(&mut self, address: SocketAddr, error: &io::Error) {
        if self.throttle.admits(Instant::now()) {
            let others = std::mem::take(&mut self.suppressed);
            tracing::warn!(%address, %error, others, "TLS handshake failed");
        } else {
            self.suppressed += 1;
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

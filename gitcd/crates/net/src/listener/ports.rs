//! Listen addresses of a server. Certificates are loaded and ports bound before anything else starts.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpListener;

use crate::tls::{self, Certificates};

/// ALPN protocols: HTTP/2 for gRPC, HTTP/1.1 for health and metrics.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// A listen address from a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The flag, without the dashes; for errors and warnings.
    pub flag: &'static str,
    /// The address; with port 0 the system chooses a free port.
    pub address: SocketAddr,
    /// Whether connections use TLS.
    pub tls: bool,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be bound.
    #[error("cannot listen on {address}; choose another with --{flag}")]
    Address {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] tls::Unusable),
    /// An `https` listener without certificates.
    #[error("https://{address} in --{flag} needs --{prefix}tls-cert and --{prefix}tls-key", prefix = prefix(flag))]
    NoCertificate {
        /// The flag that names it.
        flag: &'static str,
        /// The listener.
        address: SocketAddr,
    },
}

/// Returns the prefix of the certificate flags that belong to a flag for URLs.
fn prefix(flag: &str) -> &str {
    flag.strip_suffix("listen-urls").unwrap_or_default()
}

/// A bound listener, and its certificates if it serves `https`.
pub type Bound = (TcpListener, Option<Arc<Certificates>>);

/// A socket that keeps listening while its server changes or starts again: a connection in between waits, and is not refused.
#[derive(Debug)]
pub struct Socket(std::net::TcpListener, Option<Arc<Certificates>>);

impl Socket {
    /// Keeps a bound listener.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new((listener, certificates): Bound) -> std::io::Result<Self> {
        Ok(Self(listener.into_std()?, certificates))
    }

    /// Returns a listener on the socket.
    ///
    /// # Errors
    /// Those of the system.
    pub fn bound(&self) -> std::io::Result<Bound> {
        Ok((TcpListener::from_std(self.0.try_clone()?)?, self.1.clone()))
    }
}

/// The socket of a server that is started again after a panic: it keeps listening until it is closed. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedSocket(Arc<Mutex<Option<Socket>>>);

impl SharedSocket {
    /// Keeps a bound listener.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(bound: Bound) -> std::io::Result<Self> {
        Ok(Self(Arc::new(Mutex::new(Some(Socket::new(bound)?)))))
    }

    /// Returns a listener on the socket; `None` once it is closed.
    pub(crate) fn bound(&self) -> Option<std::io::Result<Bound>> {
        self.0.lock().as_ref().map(Socket::bound)
    }

    /// Closes the socket. New connections are refused once its listeners are dropped, too.
    pub(crate) fn close(&self) {
        *self.0.lock() = None;
    }
}

/// Listen addresses with their loaded certificates.
#[derive(Debug)]
pub struct Ports(Vec<(Listen, Option<Arc<Certificates>>)>);

impl Ports {
    /// Loads the certificates for the `https` listeners. Warns about each `http` listener that ignores configured certificates or
    /// that other machines can reach.
    ///
    /// # Errors
    /// [`ListenError::Tls`], [`ListenError::NoCertificate`].
    pub fn new(listen: &[Listen], files: Option<tls::Files>) -> Result<Self, ListenError> {
        let asks = files.as_ref().is_some_and(|files| files.trusted_ca.is_some());
        let certificates = files.map(|files| Certificates::load(files, PROTOCOLS)).transpose()?.map(Arc::new);
        let of = |listen: &Listen| {
            let Listen { flag, address, tls } = *listen;
            if tls {
                return match &certificates {
                    Some(certificates) => Ok((*listen, Some(certificates.clone()))),
                    None => Err(ListenError::NoCertificate { flag, address }),
                };
            }
            if certificates.is_some() {
                tracing::warn!("{}", unused(flag, address, asks));
            }
            if !address.ip().is_loopback() {
                tracing::warn!(%address, "listening without TLS on an address that other machines can reach: traffic can be read");
            }
            Ok((*listen, None))
        };
        Ok(Self(listen.iter().map(of).collect::<Result<_, _>>()?))
    }

    /// Binds all addresses. May be called again after the returned listeners are dropped.
    ///
    /// # Errors
    /// [`ListenError::Address`]; then no address stays bound.
    pub async fn bind(&self) -> Result<Vec<Bound>, ListenError> {
        let mut bound = Vec::new();
        for (Listen { flag, address, .. }, certificates) in &self.0 {
            let error = |source| ListenError::Address { flag, address: *address, source };
            bound.push((TcpListener::bind(address).await.map_err(error)?, certificates.clone()));
        }
        Ok(bound)
    }
}

/// Returns the warning for an `http` listener when certificates are configured.
fn unused(flag: &str, address: SocketAddr, asks: bool) -> String {
    let prefix = prefix(flag);
    let open = if asks {
        format!(" Clients need no certificate there, despite --{prefix}tls-trusted-ca-certs.")
    } else {
        String::new()
    };
    format!(
        "http://{address} in --{flag} is served without TLS: --{prefix}tls-cert and --{prefix}tls-key are not used for it.{open} \
         Write https://{address} to use them."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn a_port_in_use_and_missing_certificates_name_the_flags_that_they_come_from() {
        for (flag, tls) in [("listen-urls", "--tls-cert and --tls-key"), ("host-listen-urls", "--host-tls-cert and")] {
            let listen = Listen { flag, address: HERE, tls: false };
            let bound = Ports::new(&[listen], None).unwrap().bind().await.unwrap();
            let taken = Listen { address: bound[0].0.local_addr().unwrap(), ..listen };
            let ports = Ports::new(&[listen, taken], None).unwrap();
            let said = ports.bind().await.unwrap_err().to_string();
            assert!(said.ends_with(&format!("choose another with --{flag}")), "{said}");
            drop(bound);
            assert_eq!(ports.bind().await.unwrap().len(), 2, "the port is free again");
            let said = Ports::new(&[Listen { tls: true, ..listen }], None).unwrap_err().to_string();
            assert!(said.contains(tls) && said.contains(&format!("--{flag}")), "{said}");
        }
    }

    #[test]
    fn unused_certificates_are_reported_with_the_remedy() {
        let said = unused("host-listen-urls", HERE, true);
        for words in ["--host-listen-urls", "--host-tls-cert", "--host-tls-trusted-ca-certs", "https://127.0.0.1:0"] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!unused("listen-urls", HERE, false).contains("trusted"));
    }
}

//! Where a server is to listen: certificates are read and ports taken before anything else is done.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::tls::{self, Certificates};

/// An address to listen on, as a flag gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The flag, without the dashes; for errors and warnings.
    pub flag: &'static str,
    /// The address; with port 0 the system chooses a free port.
    pub address: SocketAddr,
    /// Whether connections use TLS.
    pub tls: bool,
}

/// Why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address cannot be had.
    #[error("cannot listen on {address}; choose another with --{flag}")]
    Address {
        /// The flag that names it.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
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

/// What the flags for certificates begin with that go with a flag for URLs.
fn prefix(flag: &str) -> &str {
    flag.strip_suffix("listen-urls").unwrap_or_default()
}

/// A listener, and its certificates if it is one for `https`.
pub type Bound = (TcpListener, Option<Arc<Certificates>>);

/// Where to listen, with certificates that have been read.
#[derive(Debug)]
pub struct Ports(Vec<(Listen, Option<Arc<Certificates>>)>);

impl Ports {
    /// Reads the certificates, which are for `https` only; warns of `http` where somebody may expect something else.
    ///
    /// # Errors
    /// [`ListenError::Tls`], [`ListenError::NoCertificate`].
    pub fn new(listen: &[Listen], files: Option<tls::Files>) -> Result<Self, ListenError> {
        let asks = files.as_ref().is_some_and(|files| files.trusted_ca.is_some());
        let certificates = files.map(Certificates::load).transpose()?.map(Arc::new);
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

    /// Takes the ports. May be called again once what it gave is dropped.
    ///
    /// # Errors
    /// [`ListenError::Address`], with none of them taken.
    pub async fn bind(&self) -> Result<Vec<Bound>, ListenError> {
        let mut bound = Vec::new();
        for (Listen { flag, address, .. }, certificates) in &self.0 {
            let error = |source| ListenError::Address { flag, address: *address, source };
            bound.push((TcpListener::bind(address).await.map_err(error)?, certificates.clone()));
        }
        Ok(bound)
    }
}

/// What is said of certificates beside a URL without TLS.
fn unused(flag: &str, address: SocketAddr, asks: bool) -> String {
    let prefix = prefix(flag);
    let open = if asks {
        format!(" Nobody is asked for a certificate there, whatever --{prefix}tls-trusted-ca-certs says.")
    } else {
        String::new()
    };
    format!(
        "http://{address} in --{flag} is served without TLS: --{prefix}tls-cert and --{prefix}tls-key are not used for it.{open} \
         Write https://{address} if they shall be."
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
            assert_eq!(ports.bind().await.unwrap().len(), 2, "it is free again");
            let said = Ports::new(&[Listen { tls: true, ..listen }], None).unwrap_err().to_string();
            assert!(said.contains(tls) && said.contains(&format!("--{flag}")), "{said}");
        }
    }

    #[test]
    fn certificates_that_are_not_used_are_told_with_the_remedy() {
        let said = unused("host-listen-urls", HERE, true);
        for words in ["--host-listen-urls", "--host-tls-cert", "--host-tls-trusted-ca-certs", "https://127.0.0.1:0"] {
            assert!(said.contains(words), "{said}");
        }
        assert!(!unused("listen-urls", HERE, false).contains("trusted"));
    }
}

//! Listen addresses in flags.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::TcpListener;

/// A listen address: `:8080` is a port on all addresses; `127.0.0.1:8080`, `[::1]:8080` and `localhost:8080` are one address.
/// Port 0 is any free port. `0`, which is the default, disables the listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// No listener.
    #[default]
    Off,
    /// This port on all addresses.
    All(u16),
    /// This address and port.
    One(SocketAddr),
}

/// Error of a text that is not a listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an address: use IP:PORT, :PORT for all addresses, or 0 for none")]
pub struct UnknownAddress(String);

impl FromStr for Address {
    type Err = UnknownAddress;

    fn from_str(text: &str) -> Result<Self, UnknownAddress> {
        let unknown = || UnknownAddress(text.to_owned());
        let port = |port: &str| port.parse().map_err(|_| unknown());
        match text.rsplit_once(':') {
            None if matches!(text, "" | "0") => Ok(Self::Off),
            Some(("", digits)) => Ok(Self::All(port(digits)?)),
            Some(("localhost", digits)) => Ok(Self::One((Ipv4Addr::LOCALHOST, port(digits)?).into())),
            _ => text.parse().map(Self::One).map_err(|_| unknown()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::All(port) => write!(f, ":{port}"),
            Self::One(address) => address.fmt(f),
        }
    }
}

impl Address {
    /// Returns whether only this machine can connect; true without a listener.
    pub(super) fn is_loopback(self) -> bool {
        match self {
            Self::Off => true,
            Self::All(_) => false,
            Self::One(address) => address.ip().to_canonical().is_loopback(),
        }
    }

    /// Binds the port; `None` without a listener.
    ///
    /// # Errors
    /// The error of the system.
    pub async fn listen(self) -> std::io::Result<Option<TcpListener>> {
        let listener = match self {
            Self::Off => return Ok(None),
            Self::One(address) => TcpListener::bind(address).await?,
            // An IPv6 socket accepts IPv4, too. The machine may have no IPv6.
            Self::All(port) => match TcpListener::bind((IpAddr::from(Ipv6Addr::UNSPECIFIED), port)).await {
                Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?
                }
                listener => listener?,
            },
        };
        Ok(Some(listener))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_controller_runtime_reads_them() {
        let one = |text: &str| Address::One(text.parse().unwrap());
        for (text, expected) in [
            ("0", Address::Off),
            ("", Address::Off),
            (":8080", Address::All(8080)),
            ("127.0.0.1:8080", one("127.0.0.1:8080")),
            ("localhost:0", one("127.0.0.1:0")),
            ("[::1]:8080", one("[::1]:8080")),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["8080", ":", ":http", "example.org:80", "::1", "1.2.3.4", ":65536"] {
            assert!(text.parse::<Address>().unwrap_err().to_string().contains("use IP:PORT"), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_loopback() {
        let loopback = |text: &str| text.parse::<Address>().unwrap().is_loopback();
        assert!(["0", "localhost:1", "127.3.2.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"].into_iter().all(loopback));
        assert!(![":1", "0.0.0.0:1", "[::]:1", "10.0.0.1:1"].into_iter().any(loopback));
    }
}

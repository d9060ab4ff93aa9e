//! To which servers tokens are sent.
//!
//! The URL is in an object and the token in a Secret, and whoever may write the one may not read the other. So it is the operator of the manager who says which servers
//! there are.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

use crate::github::AccessError;

/// The host of GitHub's own API.
const PUBLIC: &str = "api.github.com";

/// A host, as it is in URLs, with a port or with any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

/// It is no host.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no host: write it as github.example.org or github.example.org:8443, without https:// and path")]
pub struct NoHost(String);

/// Those that tokens are sent to: api.github.com, and what the operator names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Beside api.github.com.
    pub named: Vec<Host>,
    /// Whether tokens may be sent without TLS, too, which otherwise is so on loopback only.
    pub in_the_clear: bool,
}

impl FromStr for Host {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let wrong = || NoHost(text.to_owned());
        let authority: http::uri::Authority = text.parse().map_err(|_| wrong())?;
        let (name, port) = (authority.host().to_ascii_lowercase(), authority.port_u16());
        // A user, a port that is none, and a star, which means nothing here.
        let is_whole = port.map_or_else(|| name.clone(), |port| format!("{name}:{port}")) == text.to_ascii_lowercase();
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-[]:".contains(&byte));
        if !is_whole || !is_name || name.is_empty() {
            return Err(wrong());
        }
        Ok(Self { name, port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Host {
    fn is_of(&self, name: &str, port: Option<u16>) -> bool {
        self.name.eq_ignore_ascii_case(name) && self.port.is_none_or(|ours| Some(ours) == port)
    }
}

impl Servers {
    /// Whether a token may be sent there.
    ///
    /// # Errors
    /// [`AccessError::Server`], [`AccessError::Clear`].
    pub(crate) fn check(&self, url: &Uri) -> Result<(), AccessError> {
        let name = url.host().unwrap_or_default();
        let is_secure = url.scheme_str() == Some("https");
        let port = url.port_u16().or(Some(if is_secure { 443 } else { 80 }));
        let is_known = name.eq_ignore_ascii_case(PUBLIC) || self.named.iter().any(|host| host.is_of(name, port));
        if !is_known {
            return Err(AccessError::Server(url.authority().map(ToString::to_string).unwrap_or_default()));
        }
        if !is_secure && !self.in_the_clear && !is_loopback(name) {
            return Err(AccessError::Clear(name.to_owned()));
        }
        Ok(())
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| name.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(named: &[&str], in_the_clear: bool) -> Servers {
        Servers { named: named.iter().map(|host| host.parse().unwrap()).collect(), in_the_clear }
    }

    #[test]
    fn tokens_go_to_github_and_to_whom_the_operator_names_and_to_nobody_in_the_clear() {
        let usual = Servers::default();
        let some = servers(&["github.example.org", "other.example.org:8443", "127.0.0.1", "[::1]"], false);
        let clear = servers(&["github.example.org"], true);
        for (servers, url, expected) in [
            (&usual, "https://api.github.com", "well"),
            (&usual, "https://API.GitHub.com:443/x", "well"),
            (&usual, "http://api.github.com", "clear"),
            (&usual, "https://github.example.org/api/v3", "server"),
            (&usual, "https://api.github.com.example.org", "server"),
            (&usual, "https://api.github.com@example.org", "server"),
            (&usual, "http://169.254.169.254/latest", "server"),
            // The manager's own ports are nobody's.
            (&usual, "http://127.0.0.1:8080", "server"),
            (&usual, "http://localhost:8081", "server"),
            (&some, "https://GITHUB.example.org/api/v3", "well"),
            (&some, "https://github.example.org:444/api/v3", "well"),
            (&some, "http://github.example.org/api/v3", "clear"),
            (&some, "https://other.example.org:8443", "well"),
            (&some, "https://other.example.org", "server"),
            (&some, "http://127.0.0.1:9", "well"),
            (&some, "http://127.0.0.2:9", "server"),
            (&some, "http://[::1]:9", "well"),
            (&clear, "http://github.example.org/api/v3", "well"),
            (&clear, "http://example.org", "server"),
        ] {
            let found = match servers.check(&url.parse().unwrap()) {
                Ok(()) => "well",
                Err(AccessError::Clear(_)) => "clear",
                Err(AccessError::Server(_)) => "server",
                Err(error) => panic!("{url}: {error}"),
            };
            assert_eq!(found, expected, "{url}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for text in [
            "",
            "https://github.example.org",
            "github.example.org/api",
            "me@example.org",
            "*.example.org",
            "a:b",
            "a b",
        ] {
            let error = text.parse::<Host>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")) && error.contains("github.example.org:8443"), "{error}");
        }
        assert_eq!("GitHub.example.org:8443".parse::<Host>().unwrap().to_string(), "github.example.org:8443");
    }
}

//! To which servers tokens are sent.
//!
//! The URL is in an object and the token in a Secret, and whoever may write the one may not read the other. So it is the operator of the manager who says which servers
//! there are. Whoever made the Secret may say in it which one its token is for.

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
#[error("{0:?} is not a host: write it as github.example.org or github.example.org:8443, without https:// and path")]
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

/// The server that the key `url` of a Secret names. A user and a path do not matter, and without a scheme it is HTTPS: as gitcd takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    scheme: String,
    host: Host,
}

impl Purpose {
    /// `None` if that is no server.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(Self { scheme: scheme.to_ascii_lowercase(), host: host.parse().ok()? })
    }

    /// Whether what is for this server is for an API, too.
    pub(crate) fn covers(&self, api: &Uri) -> bool {
        let scheme = api.scheme_str().unwrap_or_default();
        let port = |own: Option<u16>| own.unwrap_or(if scheme == "https" { 443 } else { 80 });
        let name = api.host().unwrap_or_default().to_ascii_lowercase();
        self.scheme == scheme
            && port(self.host.port) == port(api.port_u16())
            && [name.as_str(), web(&name)].contains(&self.host.name.as_str())
    }

    /// The host, unless it may be something else than a host that somebody has put there.
    pub(crate) fn shown(&self) -> Option<String> {
        let name = &self.host.name;
        (name.contains(['.', ':']) || name == "localhost").then(|| self.host.to_string())
    }
}

/// The host of pages and repositories: GitHub itself has another one for the API, a GitHub Enterprise server has not.
fn web(api: &str) -> &str {
    match api.strip_prefix("api.") {
        Some(web) if web == "github.com" || web.ends_with(".ghe.com") => web,
        _ => api,
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
    fn a_secret_is_for_the_server_that_it_names_and_for_its_api() {
        let (github, residency) = ("https://api.github.com", "https://api.octocorp.ghe.com");
        let (enterprise, local) = ("https://github.example.org/api/v3", "http://127.0.0.1:8080");
        for (url, api, expected) in [
            ("https://github.com", github, true),
            ("github.com", github, true),
            ("https://someone:secret@GitHub.com:443/example-org/cluster.git", github, true),
            ("https://api.github.com/", github, true),
            ("https://github.com", "https://API.github.com:443", true),
            ("http://github.com", github, false),
            ("ssh://git@github.com", github, false),
            ("https://github.com:8443", github, false),
            ("https://gist.github.com", github, false),
            ("https://git.example.org", github, false),
            ("https://github.com.example.org", github, false),
            ("https://github.com@git.example.org/x", github, false),
            ("https://octocorp.ghe.com", residency, true),
            ("https://other.ghe.com", residency, false),
            ("https://github.com", residency, false),
            ("https://github.example.org", enterprise, true),
            ("https://example.org", "https://api.example.org", false),
            ("https://github.com", enterprise, false),
            ("https://github.example.org", github, false),
            ("http://127.0.0.1:8080/x", local, true),
            ("http://127.0.0.1", local, false),
            ("https://127.0.0.1:8080", local, false),
        ] {
            let purpose = Purpose::of(url).unwrap();
            assert_eq!(purpose.covers(&api.parse().unwrap()), expected, "{url} {api}");
        }
        for none in
            ["https://", "ghp_TokenInTheWrongPlace", "https:// github.com", "https://github.com?x", "//github.com"]
        {
            assert_eq!(Purpose::of(none), None, "{none}");
        }
        let shown = |url| Purpose::of(url).unwrap().shown();
        assert_eq!(shown("https://someone:secret@git.example.org:8443/x").as_deref(), Some("git.example.org:8443"));
        assert_eq!(shown("https://[::1]/x").as_deref(), Some("[::1]"));
        assert_eq!(shown("0123456789abcdef0123456789abcdef01234567"), None, "it may be a token");
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

//! The servers that may receive tokens.
//!
//! The URL is in an object and the token in a Secret, and write access to objects does not imply read access to Secrets.
//! So the manager's operator defines which servers are allowed. In addition, a Secret can restrict its token to one
//! server.

use std::fmt;
use std::str::FromStr;

use http::Uri;
use trishanku_service::plain_http::is_loopback;

/// The host of github.com's API.
const PUBLIC: &str = "api.github.com";

/// A host of URLs, with one port or any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

/// The text is not a host.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a host: write it as github.example.org or github.example.org:8443, without https:// and path")]
pub struct NoHost(String);

/// The allowed servers: api.github.com, and those that the operator adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    /// Hosts besides api.github.com.
    pub named: Vec<Host>,
    /// Whether tokens may be sent to other hosts than loopback without TLS.
    pub in_the_clear: bool,
}

/// Why GitHub cannot be accessed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The token is not a valid header value.
    #[error("the token is empty or has invalid characters; store only the token in the Secret")]
    Token,
    /// The URL is invalid.
    #[error("spec.apiUrl: {0:?} is not the URL of an API such as https://github.example.org/api/v3")]
    Url(String),
    /// The server is not allowed.
    #[error(
        "spec.apiUrl: tokens are not sent to {0}, which the manager does not allow: add it to the manager's flag \
         --github-api-hosts, or remove the field for github.com"
    )]
    Server(String),
    /// The token would be sent unencrypted.
    #[error(
        "spec.apiUrl: tokens are not sent to {0} without TLS: use https://, or run the manager with --github-allow-http"
    )]
    Clear(String),
    /// The Secret is for another server.
    #[error(
        "tokens are not sent to {server}: the key \"url\" of Secret {secret:?} says that it is for {purpose}; name a Secret with a token for {server} in \
         spec.credentialsSecretName, or put another url into this one"
    )]
    Elsewhere {
        /// The Secret.
        secret: String,
        /// The server in the Secret.
        purpose: String,
        /// The requested server.
        server: String,
    },
    /// The CA certificates are invalid.
    #[error("the certificates in the Secret cannot be used: {0}")]
    Authorities(String),
}

impl FromStr for Host {
    type Err = NoHost;

    fn from_str(text: &str) -> Result<Self, NoHost> {
        let wrong = || NoHost(text.to_owned());
        let authority: http::uri::Authority = text.parse().map_err(|_| wrong())?;
        let (name, port) = (authority.host().to_ascii_lowercase(), authority.port_u16());
        // Rejects user names, invalid ports and wildcards.
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
    /// Checks whether a token may be sent to a URL.
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

/// The server in the key `url` of a Secret. User and path are ignored, and the default scheme is HTTPS, as in gitcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purpose {
    scheme: String,
    host: Host,
}

impl Purpose {
    /// Parses the key; `None` if it is not a server.
    pub(crate) fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        Some(Self { scheme: scheme.to_ascii_lowercase(), host: host.parse().ok()? })
    }

    /// Whether an API belongs to this server.
    pub(crate) fn covers(&self, api: &Uri) -> bool {
        let scheme = api.scheme_str().unwrap_or_default();
        let port = |own: Option<u16>| own.unwrap_or(if scheme == "https" { 443 } else { 80 });
        let name = api.host().unwrap_or_default().to_ascii_lowercase();
        self.scheme == scheme
            && port(self.host.port) == port(api.port_u16())
            && [name.as_str(), web(&name)].contains(&self.host.name.as_str())
    }

    /// The host for messages; `None` if it may be a secret in the wrong place.
    pub(crate) fn shown(&self) -> Option<String> {
        let name = &self.host.name;
        (name.contains(['.', ':']) || name == "localhost").then(|| self.host.to_string())
    }
}

/// The web host of an API host: they differ for GitHub itself, but not for GitHub Enterprise servers.
fn web(api: &str) -> &str {
    match api.strip_prefix("api.") {
        Some(web) if web == "github.com" || web.ends_with(".ghe.com") => web,
        _ => api,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(named: &[&str], in_the_clear: bool) -> Servers {
        Servers { named: named.iter().map(|host| host.parse().unwrap()).collect(), in_the_clear }
    }

    #[test]
    fn tokens_are_sent_only_to_allowed_servers_and_never_in_clear_text() {
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
            // Other services on loopback, such as the manager's own ports, are not allowed.
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

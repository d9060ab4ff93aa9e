//! A client for requests with one response each: no redirects, no cookies, no retries, no proxies.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use trishanku_service::http::Client;
//!
//! let client = Client::builder("http://127.0.0.1:8080".parse()?).within(Duration::from_secs(5)).build();
//! let response = client.get("/metrics").await?;
//! println!("{}: {} bytes", response.status(), response.body().len());
//! # Ok(())
//! # }
//! ```

mod error;

use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

pub use self::error::HttpError;
use crate::tls::ClientTls;

/// Default time limit of a request.
const WITHIN: Duration = Duration::from_secs(30);
/// Default size limit of a response.
const AT_MOST_BYTES: usize = 4 << 20;

/// A client of one server. Clones share its connections.
#[derive(Clone)]
pub struct Client {
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: Uri,
    within: Duration,
    at_most_bytes: usize,
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    base: Uri,
    tls: Option<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    keeps_connections: bool,
    within: Duration,
    at_most_bytes: usize,
}

impl ClientBuilder {
    /// Sets whom the client trusts, without ALPN protocols. By default it trusts no server, and can only use `http`.
    #[must_use]
    pub fn tls(mut self, config: ClientConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Sets the name in the server's certificate, if it is not the host of the base URL.
    #[must_use]
    pub fn server_name(mut self, name: ServerName<'static>) -> Self {
        self.server_name = Some(name);
        self
    }

    /// Keeps connections for later requests, and uses HTTP/2 if the server offers it. By default, every request has an HTTP/1.1
    /// connection of its own, which is closed after the response.
    #[must_use]
    pub fn keep_connections(mut self) -> Self {
        self.keeps_connections = true;
        self
    }

    /// Sets the time limit of a request, from the connection to the last byte of the response: by default 30 seconds.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = time;
        self
    }

    /// Sets the size limit of the body of a response: by default 4 MiB.
    #[must_use]
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.at_most_bytes = bytes;
        self
    }

    /// Creates the client. It connects at the first request.
    pub fn build(self) -> Client {
        let tls = self.tls.unwrap_or_else(|| ClientTls::new().config());
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let connector = match self.server_name {
            Some(name) => connector.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => connector,
        };
        let mut client = legacy::Client::builder(TokioExecutor::new());
        let connector = if self.keeps_connections {
            connector.enable_all_versions().build()
        } else {
            client.pool_max_idle_per_host(0);
            connector.enable_http1().build()
        };
        let (base, within, at_most_bytes) = (self.base, self.within, self.at_most_bytes);
        Client { inner: client.build(connector), base, within, at_most_bytes }
    }
}

impl Client {
    /// Returns settings for a client of the server at `base`, such as `https://example.org/api`.
    pub fn builder(base: Uri) -> ClientBuilder {
        let (within, at_most_bytes) = (WITHIN, AT_MOST_BYTES);
        ClientBuilder { base, tls: None, server_name: None, keeps_connections: false, within, at_most_bytes }
    }

    /// Sends `GET path` and returns the response, whatever its status.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn get(&self, path: &str) -> Result<Response<Bytes>, HttpError> {
        let request = Request::get(path).body(Bytes::new()).map_err(|error| HttpError::Request(error.into()))?;
        self.send(request).await
    }

    /// Sends a request and returns the response, whatever its status. The request's URI is a path, which is appended to that of
    /// the base URL, unless it already starts with it.
    ///
    /// # Errors
    /// [`HttpError`].
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = self.url(&parts.uri)?;
        let request = Request::from_parts(parts, Full::new(body));
        let exchange = async {
            let (parts, body) = self.inner.request(request).await.map_err(HttpError::of)?.into_parts();
            let body = Limited::new(body, self.at_most_bytes).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() {
                    HttpError::TooLarge { limit_bytes: self.at_most_bytes }
                } else {
                    HttpError::Response(error)
                }
            })?;
            Ok(Response::from_parts(parts, body.to_bytes()))
        };
        let timed_out = Err(HttpError::TimedOut { limit: self.within });
        tokio::time::timeout(self.within, exchange).await.unwrap_or(timed_out)
    }

    /// Returns the URL of a path at the server.
    fn url(&self, path: &Uri) -> Result<Uri, HttpError> {
        let failed = |error: http::Error| HttpError::Request(error.into());
        if path.authority().is_some() {
            return Err(HttpError::Request("the request's URI is not a path".into()));
        }
        let path = path.path_and_query().map_or("/", PathAndQuery::as_str);
        let prefix = self.base.path().trim_end_matches('/');
        let is_below = path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(['/', '?']) || rest.is_empty());
        let path = if is_below { path.to_owned() } else { format!("{prefix}{path}") };
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(|error| failed(http::Error::from(error)))?);
        Uri::from_parts(parts).map_err(|error| failed(error.into()))
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_below_the_base_url_whether_or_not_they_start_with_it() {
        let url = |base: &'static str, path: &'static str| {
            let client = Client::builder(Uri::from_static(base)).build();
            client.url(&Uri::from_static(path)).map(|url| url.to_string()).map_err(|error| error.to_string())
        };
        for (base, path, expected) in [
            ("https://example.org", "/a?b=c", "https://example.org/a?b=c"),
            ("https://example.org/", "/", "https://example.org/"),
            ("https://example.org:8443/api/v3", "/user", "https://example.org:8443/api/v3/user"),
            ("https://example.org/api/v3/", "/api/v3/user", "https://example.org/api/v3/user"),
            ("https://example.org/api/v3", "/api/v3?a=b", "https://example.org/api/v3?a=b"),
            ("https://example.org/api/v3", "/api/v3evil", "https://example.org/api/v3/api/v3evil"),
        ] {
            assert_eq!(url(base, path).as_deref(), Ok(expected));
        }
        assert!(url("https://example.org", "https://evil.example.org/").unwrap_err().contains("not valid"));
    }
}

//! Errors of requests.

use std::error::Error as StdError;
use std::time::Duration;

use hyper_util::client::legacy;
use tokio_rustls::rustls;

type Cause = Box<dyn StdError + Send + Sync>;

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// There is no connection to the server.
    #[error("cannot connect")]
    Connect(#[source] Cause),
    /// The server is not trusted, or rejects the client's certificate.
    #[error("TLS failed")]
    Tls(#[source] Cause),
    /// The connection broke, or the server does not speak HTTP.
    #[error("no valid HTTP response")]
    Response(#[source] Cause),
    /// The response is too large.
    #[error("the response has more than {limit_bytes} bytes")]
    TooLarge {
        /// The size limit.
        limit_bytes: usize,
    },
    /// The time limit passed.
    #[error("no response within {limit:?}")]
    TimedOut {
        /// The time limit.
        limit: Duration,
    },
    /// The request is not valid.
    #[error("the request is not valid")]
    Request(#[source] Cause),
}

impl HttpError {
    pub(super) fn of(error: legacy::Error) -> Self {
        let is_tls = is_tls(&error);
        let is_connect = error.is_connect();
        let cause = Cause::from(Inner(error));
        match (is_tls, is_connect) {
            (true, _) => Self::Tls(cause),
            (false, true) => Self::Connect(cause),
            (false, false) => Self::Response(cause),
        }
    }
}

/// The cause of an error of the library, whose own text says no more than the variants of [`HttpError`].
#[derive(Debug)]
struct Inner(legacy::Error);

impl Inner {
    fn get(&self) -> &(dyn StdError + 'static) {
        self.0.source().unwrap_or(&self.0)
    }
}

impl std::fmt::Display for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self.get(), f)
    }
}

impl StdError for Inner {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.get().source()
    }
}

/// Whether an error of rustls is among the causes. What a system error wraps is not its source.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let inner = inner.map(|inner| inner as &(dyn StdError + 'static));
    inner.or_else(|| error.source()).is_some_and(is_tls)
}

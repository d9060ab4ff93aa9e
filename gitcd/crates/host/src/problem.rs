//! Error responses.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Why a request fails. Clients see only the text here.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// No credentials, or unknown ones.
    #[error("unauthorized")]
    Unauthorized,
    /// No access, or no such repository: the same response, so that names do not leak.
    #[error("forbidden")]
    Forbidden,
    #[error("not found")]
    NotFound,
    #[error("method not allowed")]
    Method,
    #[error("bad request: {0}")]
    Bad(&'static str),
    #[error("the content type must be {0}")]
    Type(&'static str),
    #[error("the request is too large")]
    TooLarge,
    #[error("the request came too slowly")]
    Slow,
    /// The connection failed in the middle of a request; no client sees this.
    #[error("the client disconnected")]
    Gone,
    #[error("too many requests; try again")]
    Busy,
    /// The reason is in the log.
    #[error("the host failed")]
    Failed,
}

impl Problem {
    /// Logs an error that is not the client's fault.
    pub(super) fn failed(what: &str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| {
            tracing::error!(%error, "{what}");
            Self::Failed
        }
    }
}

/// Runs blocking work for a request on a thread for such work; see [`gitcd_core::blocking::run`].
///
/// # Errors
/// [`Problem::Failed`] if it panics, which is logged.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    gitcd_core::blocking::run(what, work).await.map_err(|error| {
        tracing::error!(%error, "a request failed");
        Problem::Failed
    })
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Bad(_) | Self::Gone => StatusCode::BAD_REQUEST,
            Self::Type(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        let extra = match self {
            Self::Unauthorized => Some((header::WWW_AUTHENTICATE, "Basic realm=\"gitcd\", charset=\"UTF-8\"")),
            Self::Busy => Some((header::RETRY_AFTER, "5")),
            _ => None,
        };
        if let Some((name, value)) = extra {
            response.headers_mut().insert(name, header::HeaderValue::from_static(value));
        }
        response
    }
}

//! Errors of requests to GitHub.

use std::time::Duration;

use trishanku_framework::{Failure, Retry};

use super::pace::Limited;

/// Why a request to GitHub failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The token has reached a limit.
    #[error(transparent)]
    Limited(#[from] Limited),
    /// There is no response.
    #[error("cannot {what}: {problem}")]
    Unreachable {
        /// The attempted operation.
        what: String,
        /// The error of the transport.
        problem: String,
    },
    /// The server is temporarily unavailable.
    #[error("cannot {what}: HTTP status {status}: {message}")]
    Unavailable {
        /// The attempted operation.
        what: String,
        /// The HTTP status.
        status: u16,
        /// The message of the server.
        message: String,
        /// The delay that the server asks for.
        after: Option<Duration>,
    },
    /// The token is not valid, or no longer.
    #[error("cannot {what}: the token is not valid ({message}); put a new one into the Secret")]
    Unauthorized {
        /// The attempted operation.
        what: String,
        /// The message of the server.
        message: String,
    },
    /// The token lacks a permission.
    #[error("cannot {what}: the token lacks permission ({message}){needs}")]
    Forbidden {
        /// The attempted operation.
        what: String,
        /// The message of the server.
        message: String,
        /// The required permissions, if the server names them: empty, or starting with a semicolon.
        needs: String,
    },
    /// The object does not exist, or the token may not see it.
    #[error("cannot {what}: it does not exist, or the token may not see it")]
    NotFound {
        /// The attempted operation.
        what: String,
    },
    /// Another operation on the object is in progress.
    #[error("cannot {what} now: {message}")]
    Conflict {
        /// The attempted operation.
        what: String,
        /// The message of the server.
        message: String,
    },
    /// The server rejects the request.
    #[error("cannot {what}: {message}")]
    Refused {
        /// The attempted operation.
        what: String,
        /// The message of the server.
        message: String,
    },
    /// The response is not one of GitHub's API.
    #[error("cannot {what}: unexpected response: {problem}; check spec.apiUrl")]
    Nonsense {
        /// The attempted operation.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl CallError {
    /// Whether the requested name is taken.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Refused { message, .. } if message.contains("name already exists"))
    }
}

impl Failure for CallError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Limited(_) => "RateLimited",
            Self::Unreachable { .. } => "GitHubUnreachable",
            Self::Unavailable { .. } => "GitHubUnavailable",
            Self::Unauthorized { .. } => "TokenInvalid",
            Self::Forbidden { .. } => "PermissionMissing",
            Self::NotFound { .. } => "NotFoundOnGitHub",
            Self::Conflict { .. } => "Conflict",
            Self::Refused { .. } => "RefusedByGitHub",
            Self::Nonsense { .. } => "UnexpectedAnswer",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Limited(limited) => Retry::NotBefore(limited.wait),
            Self::Unavailable { after: Some(after), .. } => Retry::NotBefore(*after),
            Self::Unreachable { .. }
            | Self::Unavailable { after: None, .. }
            | Self::Conflict { .. }
            | Self::Nonsense { .. } => Retry::BackOff,
            Self::Unauthorized { .. } | Self::Forbidden { .. } | Self::NotFound { .. } | Self::Refused { .. } => {
                Retry::Terminal
            }
        }
    }
}

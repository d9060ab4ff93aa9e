//! What GitHub says no to, in our words.

use std::time::Duration;

use trishanku_framework::{Failure, Retry};

use super::pace::Limited;

/// Why GitHub did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// A limit of the token, or of the server.
    #[error(transparent)]
    Limited(#[from] Limited),
    /// There is no answer.
    #[error("cannot {what}: {problem}")]
    Unreachable {
        /// What was to be done.
        what: String,
        /// What is in the way.
        problem: String,
    },
    /// The server is in trouble.
    #[error("cannot {what}: the server answers {status}: {message}")]
    Unavailable {
        /// What was to be done.
        what: String,
        /// The code.
        status: u16,
        /// What it says.
        message: String,
        /// When it wants to be asked again.
        after: Option<Duration>,
    },
    /// The token is none, or none any more.
    #[error("cannot {what}: the token is not valid ({message}); put a new one into the Secret")]
    Unauthorized {
        /// What was to be done.
        what: String,
        /// What the server says.
        message: String,
    },
    /// The token may not do that.
    #[error("cannot {what}: the token may not do that ({message}){needs}")]
    Forbidden {
        /// What was to be done.
        what: String,
        /// What the server says.
        message: String,
        /// What is needed, as far as the server says; empty or begins with a semicolon.
        needs: String,
    },
    /// It is not there, or the token may not see it.
    #[error("cannot {what}: it is not there, or the token may not see it")]
    NotFound {
        /// What was to be done.
        what: String,
    },
    /// Something else is under way with it.
    #[error("cannot {what} now: {message}")]
    Conflict {
        /// What was to be done.
        what: String,
        /// What the server says.
        message: String,
    },
    /// It makes no sense to the server.
    #[error("cannot {what}: {message}")]
    Refused {
        /// What was to be done.
        what: String,
        /// What the server says.
        message: String,
    },
    /// The answer makes no sense to us.
    #[error("cannot {what}: the answer is none of GitHub's: {problem}; is spec.apiUrl right?")]
    Nonsense {
        /// What was to be done.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl CallError {
    /// Whether something else has the name that was asked for.
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
                Retry::AfterChange
            }
        }
    }
}

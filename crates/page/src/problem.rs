//! Why a request has no page.

use std::time::Duration;

use axum::http::StatusCode;
use gitcd_history::HistoryError;
use gitcd_history::blame::BlameError;
use gitcd_history::find::FindCommitError;
use gitcd_repo::changes::TreeError;

use crate::rights::RightsError;
use crate::undo::UndoError;

/// How long a read of the repository may take, including the wait for earlier ones.
pub(crate) const READ_LIMIT: Duration = Duration::from_secs(20);

/// Why a request has no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// There is no such page, commit or object.
    #[error("{0}")]
    Missing(String),
    /// The user may not read it.
    #[error("{0}")]
    NotAllowed(String),
    /// The request cannot be answered.
    #[error("{0}")]
    Unusable(String),
    /// The work takes too long, or there are too many concurrent requests.
    #[error("{0}")]
    Late(String),
    /// The plan of an undo cannot be made.
    #[error("{0}")]
    NotUndone(String),
    /// Rights cannot be checked.
    #[error(transparent)]
    Rights(#[from] RightsError),
    /// The repository cannot be read.
    #[error("the branch cannot be read: {0}")]
    Unreadable(String),
}

impl Problem {
    /// The problem of a read that took too long.
    pub(crate) fn late_read() -> Self {
        let seconds = READ_LIMIT.as_secs();
        Self::Late(format!(
            "the repository was not read within {seconds} seconds; try again, or use `trishanku log` on a terminal"
        ))
    }

    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::NotAllowed(_) => StatusCode::FORBIDDEN,
            Self::Unusable(_) => StatusCode::BAD_REQUEST,
            Self::Late(_) | Self::Rights(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotUndone(_) => StatusCode::BAD_GATEWAY,
            Self::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<HistoryError> for Problem {
    fn from(error: HistoryError) -> Self {
        match error {
            HistoryError::Stopped => Self::late_read(),
            error => Self::Unreadable(error.to_string()),
        }
    }
}

impl From<TreeError> for Problem {
    fn from(error: TreeError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl From<git2::Error> for Problem {
    fn from(error: git2::Error) -> Self {
        Self::Unreadable(error.message().to_owned())
    }
}

impl From<FindCommitError> for Problem {
    fn from(error: FindCommitError) -> Self {
        match error {
            FindCommitError::History(error) => error.into(),
            error => Self::Missing(error.to_string()),
        }
    }
}

impl From<UndoError> for Problem {
    fn from(error: UndoError) -> Self {
        Self::NotUndone(error.to_string())
    }
}

impl From<BlameError> for Problem {
    fn from(error: BlameError) -> Self {
        match error {
            BlameError::History(error) => error.into(),
            error => Self::Missing(error.to_string()),
        }
    }
}

//! Errors of the controller of repositories.

use std::time::Duration;

use trishanku_framework::{Failure, Retry};

use crate::github::{AccessError, CallError};

/// Why a repository cannot be reconciled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request to the cluster failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// A request to GitHub failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The token, address or certificates cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The Secret or one of its keys does not exist yet.
    #[error("{0} does not exist")]
    Missing(String),
    /// A repository of this name exists, but was neither created nor adopted by this object.
    #[error("{0} already exists and does not belong to this object: set spec.adopt to adopt it, or rename this object")]
    Exists(String),
    /// Another repository has its name.
    #[error(
        "{name} is not the repository that was created or adopted (id {found} instead of {known}): rename one of them, or recreate this object"
    )]
    Replaced {
        /// The name.
        name: String,
        /// The id of the present repository.
        found: i64,
        /// The id of the expected repository.
        known: i64,
    },
    /// The repository is not visible, but its name is taken.
    #[error(
        "{name} (id {id}) is not visible, and its name is taken: the token may not see it, or it was deleted and another one has its name; give the \
         token access to it"
    )]
    Hidden {
        /// The name.
        name: String,
        /// The id of the repository that was created or adopted.
        id: i64,
    },
    /// The repository of this name has been renamed.
    #[error(
        "{name} was renamed to {found}, which is not adopted in its place: give this object the new name of the repository, or a name that was never used"
    )]
    Renamed {
        /// The requested name.
        name: String,
        /// The new full name.
        found: String,
    },
    /// The repository was moved to another owner.
    #[error("it was moved to another owner, as {0}: move it back, or create another object for it")]
    Moved(String),
    /// The repository is read-only.
    #[error(
        "{name} is archived, so {fields} cannot be changed: set spec.archived to false, or leave these as they are"
    )]
    Archived {
        /// The repository.
        name: String,
        /// The fields that differ.
        fields: String,
    },
    /// The future default branch does not exist yet.
    #[error("branch {branch:?} does not exist")]
    NoBranch {
        /// The branch.
        branch: String,
        /// The delay before a retry, since GitHub sends no notification.
        look_again: Duration,
    },
}

/// The reason of [`Error::Hidden`], by which a later reconcile recognises it.
pub(crate) const HIDDEN: &str = "NotVisible";
/// The longest delay before a retry; a watch usually triggers it earlier.
const LOOK_AGAIN: Duration = Duration::from_mins(5);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Call(error) => error.reason(),
            Self::Access(AccessError::Token) => "TokenInvalid",
            Self::Access(AccessError::Server(_) | AccessError::Clear(_)) => "ServerNotAllowed",
            Self::Access(AccessError::Elsewhere { .. }) => "SecretForOtherServer",
            Self::Access(_) => "AccessInvalid",
            Self::Missing(_) => "SecretNotFound",
            Self::Exists(_) => "AlreadyExists",
            Self::Replaced { .. } => "Replaced",
            Self::Hidden { .. } => HIDDEN,
            Self::Renamed { .. } => "Renamed",
            Self::Moved(_) => "Moved",
            Self::Archived { .. } => "Archived",
            Self::NoBranch { .. } => "DefaultBranchNotFound",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Call(error) => error.retry(),
            Self::Missing(what) => Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN },
            Self::NoBranch { branch, look_again } => {
                Retry::Waiting { on: format!("branch {branch:?}, the future default branch"), look_again: *look_again }
            }
            Self::Access(_)
            | Self::Exists(_)
            | Self::Replaced { .. }
            | Self::Hidden { .. }
            | Self::Renamed { .. }
            | Self::Moved(_)
            | Self::Archived { .. } => Retry::Terminal,
        }
    }
}

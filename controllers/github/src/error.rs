//! Why a repository is not as it should be.

use std::time::Duration;

use trishanku_framework::{Failure, Retry};

use crate::github::{AccessError, CallError};

/// Why a repository is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request to the cluster failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// GitHub did not do what it was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is no way to GitHub.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// Something that somebody else supplies is not there yet.
    #[error("{0} is not there")]
    Missing(String),
    /// It is somebody's, as far as we know.
    #[error("{0} already exists and does not belong to this object: set spec.adopt to adopt it, or rename this object")]
    Exists(String),
    /// Another one has its name.
    #[error(
        "{name} is another repository than the one that was made or adopted (id {found} instead of {known}): rename one of them, or make this object anew"
    )]
    Replaced {
        /// The name.
        name: String,
        /// The one that has it.
        found: i64,
        /// The one that should.
        known: i64,
    },
    /// Its name is taken, and nothing of that name is shown.
    #[error(
        "{name} (id {id}) cannot be seen, and its name is taken: the token may not see it, or it was deleted and another one has its name; give the \
         token access to it"
    )]
    Hidden {
        /// The name.
        name: String,
        /// The one that was made or adopted.
        id: i64,
    },
    /// What had this name has another one now.
    #[error(
        "{name} was renamed to {found}, which is not taken in its place: name this object as the repository is called now, or as none was ever called"
    )]
    Renamed {
        /// The name that was asked for.
        name: String,
        /// Where GitHub leads to.
        found: String,
    },
    /// Somebody moved it to another owner.
    #[error("it was moved to {0}, and is not followed there: move it back, or make another object for it")]
    Moved(String),
    /// It is read-only.
    #[error(
        "{name} is archived, so that {fields} cannot be changed: set spec.archived to false, or leave these as they are"
    )]
    Archived {
        /// The repository.
        name: String,
        /// What should be changed.
        fields: String,
    },
    /// The branch that is to be the default one is not there yet.
    #[error("branch {branch:?} is not there")]
    NoBranch {
        /// The branch.
        branch: String,
        /// When to look again: nobody tells.
        look_again: Duration,
    },
}

/// The reason of [`Error::Hidden`], by which the next look knows it.
pub(crate) const HIDDEN: &str = "NotVisible";
/// How long to wait at most for what is watched anyhow.
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
            Self::NoBranch { branch, look_again } => Retry::Waiting {
                on: format!("branch {branch:?}, which is to be the default one"),
                look_again: *look_again,
            },
            Self::Access(_)
            | Self::Exists(_)
            | Self::Replaced { .. }
            | Self::Hidden { .. }
            | Self::Renamed { .. }
            | Self::Moved(_)
            | Self::Archived { .. } => Retry::AfterChange,
        }
    }
}

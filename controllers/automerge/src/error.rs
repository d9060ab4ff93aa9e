//! Errors of the merge controller.

use std::time::Duration;

use trishanku_framework::apply::ApplyError;
use trishanku_framework::inject::JsonError;
use trishanku_framework::{Failure, Retry};
use trishanku_heaven_plan::own_namespace::InOwnNamespace;
use trishanku_heaven_plan::plan::PlanError;

/// Why a merge cannot be reconciled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// It is in the manager's own namespace.
    #[error(transparent)]
    OwnNamespace(#[from] InOwnNamespace),
    /// The manifest is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan cannot be rendered into a pod.
    #[error(transparent)]
    Template(#[from] JsonError),
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate: {0}")]
    Certificate(String),
    /// The merge would push Secrets to a public remote.
    #[error(
        "{0}, and the merge would push the Secrets of its branches there: make the repository private, set \
         spec.gitcd.pull.pushAfterMerge to false, or set spec.allowPublicSecrets if they are encrypted"
    )]
    Public(String),
    /// It is unknown whether a remote is public, and nothing will show it.
    #[error(
        "{0}, and the merge would push the Secrets of its branches there: set the remote's field public, declare the repository \
         as a GitHubRepository, or set spec.allowPublicSecrets if they are encrypted"
    )]
    Undeclared(String),
    /// It is unknown yet whether a remote is public.
    #[error("waiting for {0}")]
    NotKnownPublic(String),
    /// An object that users supply does not exist yet.
    #[error("{0} does not exist")]
    Missing(String),
}

/// The longest delay before a retry; a watch usually triggers it earlier.
const LOOK_AGAIN: Duration = Duration::from_mins(5);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Plan(_) | Self::Template(_) => "InvalidSpec",
            Self::Certificate(_) => "CertificatesFailed",
            Self::OwnNamespace(_) => "NamespaceNotAllowed",
            Self::Public(_) => "RepositoryPublic",
            Self::Undeclared(_) | Self::NotKnownPublic(_) => "RepositoryNotKnown",
            Self::Missing(_) => "NotFound",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
            Self::OwnNamespace(_) | Self::Plan(_) | Self::Template(_) | Self::Public(_) | Self::Undeclared(_) => {
                Retry::Terminal
            }
            Self::Certificate(_) => Retry::BackOff,
            Self::Missing(what) | Self::NotKnownPublic(what) => {
                Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN }
            }
        }
    }
}

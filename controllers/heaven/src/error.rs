//! Why a heaven is not as it should be.

use std::time::Duration;

use trishanku_framework::apply::ApplyError;
use trishanku_framework::inject::JsonError;
use trishanku_framework::{Failure, Retry};
use trishanku_sidecars::plan::PlanError;

use crate::certificates::IssueError;

/// Why a heaven is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object cannot be made as it should be.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// There are no certificates.
    #[error(transparent)]
    Certificates(#[from] IssueError),
    /// The manifest makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The user's pod has no place for what has to be in it.
    #[error("spec.app.podTemplate: {0}")]
    Template(#[from] JsonError),
    /// An annotation cannot be read.
    #[error("annotation {name}: {value:?} {problem}")]
    Annotation {
        /// The annotation.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A field that is needed here is not there.
    #[error("spec.{0} is missing")]
    Field(&'static str),
    /// Everybody could read the Secrets that it stores.
    #[error(
        "{0}, and Secrets would be stored in the clear: name an encryption in spec.apiserver.encryptionConfigurationSecretName, make the \
         repository private, or set spec.allowPublicSecrets"
    )]
    Public(String),
    /// Whether everybody could read them is not known yet.
    #[error("waiting for {0}")]
    NotKnownPublic(String),
    /// Something that somebody else supplies is not there yet.
    #[error("{0} is not there")]
    Missing(String),
    /// Somebody else has just written it.
    #[error("{0} has just been changed")]
    Raced(String),
}

/// How long to wait at most for what is watched anyhow.
const LOOK_AGAIN: Duration = Duration::from_mins(5);
/// How long the watch may take to tell what somebody else has written.
const RACE: Duration = Duration::from_millis(500);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Certificates(IssueError::Authority { .. }) => "CertificateAuthorityUnusable",
            Self::Certificates(IssueError::Incomplete { .. }) => "SecretIncomplete",
            Self::Certificates(_) => "CertificatesFailed",
            Self::Plan(_) | Self::Field(_) => "InvalidSpec",
            Self::Template(_) => "InvalidPodTemplate",
            Self::Annotation { .. } => "InvalidAnnotation",
            Self::Public(_) => "RepositoryPublic",
            Self::NotKnownPublic(_) => "RepositoryNotKnown",
            Self::Missing(_) => "NotFound",
            Self::Raced(_) => "Raced",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
            Self::Certificates(IssueError::Make(_) | IssueError::Unreadable) => Retry::BackOff,
            Self::Certificates(_)
            | Self::Plan(_)
            | Self::Field(_)
            | Self::Template(_)
            | Self::Public(_)
            | Self::Annotation { .. } => Retry::AfterChange,
            Self::Missing(what) | Self::NotKnownPublic(what) => {
                Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN }
            }
            Self::Raced(what) => {
                Retry::Waiting { on: format!("{what}, which has just been changed"), look_again: RACE }
            }
        }
    }
}

//! Errors of the controller of heavens.

use std::time::Duration;

use trishanku_framework::apply::ApplyError;
use trishanku_framework::{Failure, Retry};
use trishanku_heaven_plan::own_namespace::InOwnNamespace;
use trishanku_heaven_plan::plan::PlanError;
use trishanku_heaven_plan::pod::PodError;

use crate::certificates::IssueError;

/// Why a heaven cannot be reconciled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Certificates cannot be issued.
    #[error(transparent)]
    Certificates(#[from] IssueError),
    /// It is in the manager's own namespace.
    #[error(transparent)]
    OwnNamespace(#[from] InOwnNamespace),
    /// The manifest is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The manifest is invalid, or its pod template conflicts with injected containers.
    #[error(transparent)]
    Pod(#[from] PodError),
    /// An annotation is invalid.
    #[error("annotation {name}: {value:?} {problem}")]
    Annotation {
        /// The annotation.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Unencrypted Secrets would be public.
    #[error(
        "{0}, and Secrets would be stored unencrypted: set spec.apiserver.encryptionConfigurationSecretName, make the \
         repository private, or set spec.allowPublicSecrets"
    )]
    Public(String),
    /// It is unknown whether Secrets would be public, and nothing will show it.
    #[error(
        "{0}, and Secrets would be stored unencrypted: set the remote's field public, declare the repository as a \
         GitHubRepository, set spec.apiserver.encryptionConfigurationSecretName, or set spec.allowPublicSecrets"
    )]
    Undeclared(String),
    /// It is unknown yet whether Secrets would be public.
    #[error("waiting for {0}")]
    NotKnownPublic(String),
    /// No pods should run.
    #[error("no pods run while the heaven is suspended ({0})")]
    Suspended(String),
    /// The rendered pod template is not a valid pod, which is a bug.
    #[error("the rendered pod cannot be decoded")]
    Rendered(#[source] serde_json::Error),
    /// Pods of a former workload still run.
    #[error("the pods of the former workload of {0:?} still run")]
    PodsLeft(String),
    /// An object that users supply does not exist yet.
    #[error("{0} does not exist")]
    Missing(String),
    /// Another client has changed the object in the meantime.
    #[error("{0} has just been changed")]
    Raced(String),
}

/// The longest delay before a retry; a watch usually triggers it earlier.
const LOOK_AGAIN: Duration = Duration::from_mins(5);
/// Poll interval for the pods of a former workload.
const PODS: Duration = Duration::from_secs(2);
/// How long the watch may take to report another client's change.
const RACE: Duration = Duration::from_millis(500);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Certificates(IssueError::Authority { .. }) => "CertificateAuthorityUnusable",
            Self::Certificates(IssueError::Incomplete { .. }) => "SecretIncomplete",
            Self::Certificates(_) => "CertificatesFailed",
            Self::Pod(PodError::Template { .. }) | Self::Rendered(_) => "InvalidPodTemplate",
            Self::Plan(_) | Self::Pod(_) => "InvalidSpec",
            Self::Annotation { .. } => "InvalidAnnotation",
            Self::Public(_) => "RepositoryPublic",
            Self::Undeclared(_) | Self::NotKnownPublic(_) => "RepositoryNotKnown",
            Self::OwnNamespace(_) => "NamespaceNotAllowed",
            Self::Suspended(_) => "Suspended",
            Self::PodsLeft(_) => "PodsTerminating",
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
            | Self::OwnNamespace(_)
            | Self::Plan(_)
            | Self::Pod(_)
            | Self::Public(_)
            | Self::Undeclared(_)
            | Self::Suspended(_)
            | Self::Rendered(_)
            | Self::Annotation { .. } => Retry::Terminal,
            Self::Missing(what) | Self::NotKnownPublic(what) => {
                Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN }
            }
            Self::PodsLeft(name) => {
                Retry::Waiting { on: format!("the pods of the former workload of {name:?}"), look_again: PODS }
            }
            Self::Raced(what) => {
                Retry::Waiting { on: format!("{what}, which has just been changed"), look_again: RACE }
            }
        }
    }
}

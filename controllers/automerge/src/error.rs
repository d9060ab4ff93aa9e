//! Errors of the merge controller.

use std::time::Duration;

use trishanku_framework::apply::ApplyError;
use trishanku_framework::inject::JsonError;
use trishanku_framework::{Failure, Retry};
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
    /// The manifest is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan cannot be rendered into a pod.
    #[error(transparent)]
    Template(#[from] JsonError),
    /// A certificate cannot be issued.
    #[error("cannot issue a certificate: {0}")]
    Certificate(String),
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
            Self::Missing(_) => "NotFound",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
            Self::Plan(_) | Self::Template(_) => Retry::Terminal,
            Self::Certificate(_) => Retry::BackOff,
            Self::Missing(what) => Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN },
        }
    }
}

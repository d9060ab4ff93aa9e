//! Why a merge is not as it should be.

use std::time::Duration;

use trishanku_framework::apply::ApplyError;
use trishanku_framework::inject::JsonError;
use trishanku_framework::{Failure, Retry};
use trishanku_sidecars::plan::PlanError;

/// Why a merge is not as it should be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// An object cannot be made as it should be.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The manifest makes no sense.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The pod cannot be made of the plan.
    #[error(transparent)]
    Template(#[from] JsonError),
    /// There is no randomness for a key.
    #[error("cannot issue a certificate: {0}")]
    Certificate(String),
    /// Something that somebody else supplies is not there yet.
    #[error("{0} is not there")]
    Missing(String),
}

/// How long to wait at most for what is watched anyhow.
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
            Self::Plan(_) | Self::Template(_) => Retry::AfterChange,
            Self::Certificate(_) => Retry::BackOff,
            Self::Missing(what) => Retry::Waiting { on: what.clone(), look_again: LOOK_AGAIN },
        }
    }
}

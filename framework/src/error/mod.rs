//! Errors of reconciles, and when to retry.

#[cfg(feature = "client")]
mod api;

use std::time::Duration;

#[cfg(feature = "client")]
pub use self::api::Closed;
#[cfg(feature = "client")]
pub(crate) use self::api::chain;

/// How to continue after a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Retry with increasing delays: the failure may be temporary.
    BackOff,
    /// Retry after this time, and not before: a server asked for it.
    NotBefore(Duration),
    /// Retry only after a change.
    Terminal,
    /// Something does not exist yet, which is not a failure. Retried after `look_again`; a
    /// [watch](crate::Controller::watches) reacts sooner.
    Waiting {
        /// What is missing, for the log and for conditions.
        on: String,
        /// When to retry at the latest; zero as in [`Action::After`](crate::Action::After).
        look_again: Duration,
    },
}

/// An error of a [`Reconciler`](crate::Reconciler): what happened, and what to do about it.
///
/// [`Error`](crate::Error) is one for reconcilers that need no error type of their own. An error type of your own:
///
/// ```
/// use std::time::Duration;
/// use trishanku_framework::{Failure, Retry};
///
/// #[derive(Debug, thiserror::Error)]
/// enum Error {
///     #[error("level {level} is above the rim")]
///     Level { level: u32 },
///     #[error("the pump does not answer")]
///     Pump(#[source] std::io::Error),
///     #[error(transparent)]
///     Api(#[from] kube::Error),
/// }
///
/// impl Failure for Error {
///     fn reason(&self) -> &'static str {
///         match self {
///             Self::Level { .. } => "LevelAboveRim",
///             Self::Pump(_) => "PumpUnreachable",
///             Self::Api(error) => error.reason(),
///         }
///     }
///
///     fn retry(&self) -> Retry {
///         match self {
///             // Only a change of the spec helps.
///             Self::Level { .. } => Retry::Terminal,
///             Self::Pump(_) => Retry::BackOff,
///             Self::Api(error) => error.retry(),
///         }
///     }
/// }
/// ```
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// Returns a stable word in upper camel case, for conditions, events and metrics.
    fn reason(&self) -> &'static str;

    /// Returns how to continue; by default [`Retry::BackOff`].
    fn retry(&self) -> Retry {
        Retry::BackOff
    }
}

//! Errors of reconciles, and when to retry.

use std::time::Duration;

use kube::core::Status;

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

/// Error of a request that needs the lease while it is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is not held, so the request was not sent")]
pub struct Closed;

impl Failure for kube::Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(status) => match status.code {
                400 => "BadRequest",
                401 => "Unauthorized",
                403 => "Forbidden",
                404 => "NotFound",
                409 if status.is_already_exists() => "AlreadyExists",
                409 => "Conflict",
                410 => "Expired",
                422 => "Invalid",
                429 => "TooManyRequests",
                503 => "ServiceUnavailable",
                504 => "Timeout",
                _ => "ApiError",
            },
            Self::Service(error) if error.is::<Closed>() => "LeaseLost",
            _ => "ApiUnreachable",
        }
    }

    /// Returns [`Retry::NotBefore`] if the apiserver sent `Retry-After`, which [`connect`](crate::client::connect) copies
    /// into the error.
    fn retry(&self) -> Retry {
        match self {
            Self::Api(status) => match status.details.as_ref().map_or(0, |details| details.retry_after_seconds) {
                0 => Retry::BackOff,
                seconds => Retry::NotBefore(Duration::from_secs(seconds.into())),
            },
            _ => Retry::BackOff,
        }
    }
}

/// Formats an error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // kube's errors contain the apiserver's response twice, the second time in debug format.
        if let Some(status) = error.downcast_ref().or_else(|| error.downcast_ref::<Box<Status>>().map(|boxed| &**boxed))
        {
            text = text.replace(&format!(" ({status:?})"), "");
        }
        // Some repeat their cause in their own text.
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        source = error.source();
    }
    text
}

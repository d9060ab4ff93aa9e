//! What a failed reconcile means.

use std::time::Duration;

use kube::core::Status;

use crate::apply::ApplyError;
use crate::lease::Closed;

/// What is to be done about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may go away by itself: try again, less and less often.
    BackOff,
    /// Somebody asked to be left alone for this time.
    NotBefore(Duration),
    /// It does not go away before something changes.
    AfterChange,
    /// Nothing is wrong, something is just not there yet. It is looked for again after this time, without counting as a failure; a
    /// [watch](crate::Controller::watches) on it is quicker.
    Waiting {
        /// What for, for people.
        on: String,
        /// When to look again at the latest; may be zero as in [`Next::After`](crate::Next::After).
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
///             // Only who asked for it can mend it.
///             Self::Level { .. } => Retry::AfterChange,
///             Self::Pump(_) => Retry::BackOff,
///             Self::Api(error) => error.retry(),
///         }
///     }
/// }
/// ```
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// A word in upper camel case that stays the same from release to release, for conditions, events and metrics.
    fn reason(&self) -> &'static str;

    /// What to do about it; by default [`Retry::BackOff`].
    fn retry(&self) -> Retry {
        Retry::BackOff
    }
}

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

    /// [`Retry::NotBefore`] if the apiserver said when to come back, which [`connect`](crate::client::connect) makes sure to be told.
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

/// What goes wrong in a reconciler that has no troubles of its own: the errors of kube and of [`apply`](crate::apply).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something is not as it is wanted.
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // kube's errors have the apiserver's answer in their text twice, the second time for programmers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_for_people_and_says_everything_once() {
        let refused = kube::Error::Api(Box::new(Status::failure("the pump is locked", "Conflict").with_code(409)));
        assert!(refused.to_string().contains("Status {"), "kube says it shorter by itself now: {refused}");
        let transparent = Error::from(refused);
        assert_eq!(chain(&transparent), "ApiError: the pump is locked: Conflict");
        let Error::Api(refused) = transparent else { panic!("it is that of the api") };
        let (kind, key) = ("ConfigMap".to_owned(), crate::Key::namespaced("plant", "pump"));
        let applied = Error::from(ApplyError::Refused { kind, key, source: Box::new(refused) });
        let Error::Apply(ApplyError::Refused { source, .. }) = &applied else { panic!("it is that of apply") };
        let kube::Error::Api(status) = &**source else { panic!("it is that of the api") };
        let watch = kube::runtime::watcher::Error::WatchStartFailed(kube::Error::Api(status.clone()));
        let expected = "failed to start watching object: ApiError: the pump is locked: Conflict";
        assert_eq!(chain(&watch), expected);
        assert_eq!(chain(&applied), "cannot apply ConfigMap plant/pump: ApiError: the pump is locked: Conflict");
    }
}

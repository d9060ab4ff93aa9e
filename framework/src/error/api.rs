//! Errors of the apiserver.

use std::time::Duration;

use kube::core::Status;

use super::{Failure, Retry};

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

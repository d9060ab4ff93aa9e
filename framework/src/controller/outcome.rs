//! Outcomes of a reconcile.

use std::time::Duration;

use crate::error::chain;
use crate::metrics::Ending;
use crate::queue::Outcome;
use crate::{Failure, Retry};

/// The outcome for the queue, the one for metrics and traces, and the reason of a failure.
pub(super) type ReconcileOutcome = (Outcome, Ending, Option<&'static str>);

/// The server did not ask for a delay.
pub(super) const AT_ONCE: Duration = Duration::ZERO;

pub(super) fn done() -> ReconcileOutcome {
    (Outcome::Done, Ending::Success, None)
}

pub(super) fn again(after: Duration, reason: Option<&'static str>) -> ReconcileOutcome {
    let ending = if after.is_zero() { Ending::AtOnce } else { Ending::Again };
    (Outcome::Again(after), ending, reason)
}

pub(super) fn failed(error: &impl Failure) -> ReconcileOutcome {
    let reason = error.reason();
    let not_before = match error.retry() {
        Retry::Waiting { on, look_again } => {
            tracing::info!(reason, on, "waiting");
            return again(look_again, Some(reason));
        }
        Retry::Terminal => {
            tracing::warn!(reason, error = chain(error), "failed until something changes");
            return (Outcome::Terminal, Ending::Terminal, Some(reason));
        }
        Retry::BackOff => AT_ONCE,
        Retry::NotBefore(time) => time,
    };
    tracing::warn!(reason, error = chain(error), "failed");
    (Outcome::Failed { not_before }, Ending::Failed, Some(reason))
}

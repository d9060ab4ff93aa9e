//! Waiting for conditions.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Polls until there is a value, at most for [`PATIENCE`].
///
/// An error counts as "not yet", so that a starting server needs no special care; the last error is part of the result.
///
/// # Errors
/// On a timeout; the text names `what` was awaited.
pub fn until<T>(what: &str, look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    until_within(what, PATIENCE, look)
}

/// Like [`until`], with another timeout.
///
/// # Errors
/// Like [`until`].
pub fn until_within<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + patience;
    loop {
        let seen = look();
        if let Ok(Some(found)) = seen {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            match seen {
                Err(error) => bail!("waited {patience:?} for {what}; last: {error:#}"),
                _ => bail!("waited {patience:?} for {what}"),
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// [`until`] for boolean conditions.
///
/// # Errors
/// If it is not true in time.
pub fn until_true(what: &str, mut look: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    until(what, || Ok(look()?.then_some(())))
}

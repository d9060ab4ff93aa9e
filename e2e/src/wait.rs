//! Waiting for conditions.

use std::time::{Duration, Instant};

use anyhow::bail;

/// Long enough for anything that does not hang, also on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks until there is something, at most for [`PATIENCE`].
///
/// A failing look counts as "not yet", so that a server that is just starting needs no special care; the last failure is part of the
/// error.
///
/// # Errors
/// If there is nothing in time; the text names `what` was waited for.
pub fn until<T>(what: &str, look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<T> {
    until_within(what, PATIENCE, look)
}

/// The same, with another patience.
///
/// # Errors
/// As [`until`].
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

/// [`until`] for conditions that are true or not.
///
/// # Errors
/// If it is not true in time.
pub fn until_true(what: &str, mut look: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    until(what, || Ok(look()?.then_some(())))
}

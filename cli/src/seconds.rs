//! Flags that are a number of seconds.

use std::time::Duration;

/// Parses a whole number of seconds, at least 1.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let seconds: u64 = text.parse().map_err(|_| "not a whole number".to_owned())?;
    if seconds == 0 {
        return Err("must be at least 1".into());
    }
    Ok(Duration::from_secs(seconds))
}

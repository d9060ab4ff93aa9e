//! Points in the history of a branch, and how users write them.

use std::time::{Duration, SystemTime};

/// A point in the history of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a revision.
    Revision(i64),
    /// At the end of a second, in seconds since 1970.
    Time(i64),
    /// The current state.
    Now,
}

impl When {
    /// Parses `4711`, `10m` (ago), `2026-11-22T15:04:05Z`, `2026-11-22 15:04` or `2026-11-22` (UTC), `now`.
    ///
    /// # Errors
    /// A text with the accepted formats.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "now" {
            return Ok(Self::Now);
        }
        if let Ok(revision) = text.parse::<i64>() {
            return if revision > 0 { Ok(Self::Revision(revision)) } else { Err("revisions start at 1".into()) };
        }
        if let Ok(ago) = humantime::parse_duration(text) {
            return Ok(Self::Time(seconds(SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH))));
        }
        let mut full = text.to_owned();
        match full.len() {
            10 => full.push_str(" 23:59:59"),
            16 => full.push_str(":59"),
            _ => {}
        }
        let parsed = humantime::parse_rfc3339_weak(&full);
        parsed.map(|time| Self::Time(seconds(time))).map_err(|_| {
            format!("{text:?} is not a moment: give a revision (4711), how long ago (10m, 2h, 3days), or a time (2026-11-22, '2026-11-22 15:04', 2026-11-22T15:04:05Z)")
        })
    }
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_a_revision_a_time_or_how_long_ago() {
        assert_eq!(When::parse("4711"), Ok(When::Revision(4711)));
        assert_eq!(When::parse("1970-01-02"), Ok(When::Time(2 * 86_400 - 1)));
        assert_eq!(When::parse("1970-01-01 00:01"), Ok(When::Time(119)));
        assert_eq!(When::parse("1970-01-01T00:01:00Z"), Ok(When::Time(60)));
        assert_eq!(When::parse("now"), Ok(When::Now));
        let Ok(When::Time(ago)) = When::parse("10m") else { panic!("10m is a time") };
        assert!((seconds(SystemTime::now()) - 600 - ago).abs() <= 1);
        for wrong in ["0", "-3", "", "yesterday", "2026-13-01"] {
            assert!(When::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! Points in the history of a branch, and how users write them.

use std::time::{Duration, SystemTime};

/// A point in the history of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At a revision.
    Revision(i64),
    /// At the end of a second, in seconds since 1970.
    Time(i64),
    /// After a commit.
    Commit(CommitName),
    /// The current state.
    Now,
}

/// The ID of a commit, or its first digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CommitName {
    digits: [u8; 40],
    length: usize,
}

impl CommitName {
    /// Seven digits, as Git prints, or more. Numbers are revisions, unless they are whole IDs.
    fn parse(text: &str) -> Option<Self> {
        let is_name = (7..=40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let mut digits = [0; 40];
        digits.get_mut(..text.len()).filter(|_| is_name)?.copy_from_slice(text.as_bytes());
        Some(Self { digits, length: text.len() })
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.digits[..self.length]).unwrap_or_default()
    }
}

impl std::fmt::Debug for CommitName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl When {
    /// Parses `4711`, `10m` (ago), `2026-11-22T15:04:05Z`, `2026-11-22 15:04` or `2026-11-22` (UTC), a commit such as `1a2b3c4`,
    /// `now`.
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
        if let Some(name) = CommitName::parse(text) {
            return Ok(Self::Commit(name));
        }
        let mut full = text.to_owned();
        match full.len() {
            10 => full.push_str(" 23:59:59"),
            16 => full.push_str(":59"),
            _ => {}
        }
        let parsed = humantime::parse_rfc3339_weak(&full);
        parsed.map(|time| Self::Time(seconds(time))).map_err(|_| {
            format!("{text:?} is not a moment: give a revision (4711), how long ago (10m, 2h, 3days), a time (2026-11-22, '2026-11-22 15:04', 2026-11-22T15:04:05Z), or a commit (7 or more digits of its ID)")
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
        for name in ["1a2b3c4", "1A2B3C4D", &"0123456789".repeat(4), &"f".repeat(40)] {
            let Ok(When::Commit(found)) = When::parse(name) else { panic!("{name} is a commit") };
            assert_eq!(found.as_str(), name);
        }
        assert_eq!(When::parse("1234567"), Ok(When::Revision(1_234_567)));
        assert!(matches!(When::parse("1234567d"), Ok(When::Time(_))), "days");
        for wrong in ["1a2b3c", "1a2b3cg", &"f".repeat(41), "0", "-3", "", "yesterday", "2026-13-01"] {
            assert!(When::parse(wrong).is_err(), "{wrong}");
        }
    }
}

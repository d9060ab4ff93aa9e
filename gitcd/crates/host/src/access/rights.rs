//! Access levels, and the repositories that they apply to.

use serde::Deserialize;

/// Access level to a repository; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Clone, fetch and follow references.
    Read,
    /// Push.
    Write,
    /// Push gitcd's metadata (`refs/gitcd/`) and replacements of objects (`refs/replace/`) too.
    Own,
}

/// Access to the repositories whose names match a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Right {
    repository: String,
    access: Access,
}

impl Right {
    pub(super) fn everywhere(access: Access) -> Self {
        Self { repository: "**".to_owned(), access }
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Whether the pattern matches this repository, whose name comes without `.git`.
    pub(super) fn covers(&self, repository: &str) -> bool {
        let pattern = self.repository.strip_suffix(".git").unwrap_or(&self.repository);
        matches(pattern.as_bytes(), repository.as_bytes())
    }
}

/// Matches a glob: `*` is anything without a slash, `**` anything, `?` one character but a slash. Takes O(pattern × name) time.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // Element `n`: whether the pattern read so far matches the first `n` bytes of the name.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    let mut rest = pattern;
    while let Some((&first, tail)) = rest.split_first() {
        let (crosses, after) = match (first, tail) {
            (b'*', [b'*', after @ ..]) => (true, after),
            _ => (false, tail),
        };
        let mut next = vec![false; name.len() + 1];
        for at in 0..=name.len() {
            let before = at.checked_sub(1);
            next[at] = match first {
                b'*' => reached[at] || before.is_some_and(|before| next[before] && (crosses || name[before] != b'/')),
                b'?' => before.is_some_and(|before| reached[before] && name[before] != b'/'),
                _ => before.is_some_and(|before| reached[before] && name[before] == first),
            };
        }
        reached = next;
        rest = after;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, is_match) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a.git", "a", true),
            ("*", "a", true),
            ("*", "a/b", false),
            ("**", "a/b", true),
            ("team/*", "team/a", true),
            ("team/*", "team/a/b", false),
            ("team/*", "team", false),
            ("team/**", "team/a/b", true),
            ("*-store", "my-store", true),
            ("*-store", "my-stores", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("a*b*c", "axxbyyc", true),
            ("", "a", false),
        ] {
            let right = Right { repository: pattern.to_owned(), access: Access::Read };
            assert_eq!(right.covers(name), is_match, "{pattern} and {name}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_longer_than_others() {
        assert!(!matches("*a".repeat(200).as_bytes(), "a".repeat(199).as_bytes()));
    }
}

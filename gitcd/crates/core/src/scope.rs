//! Scopes: which keys a branch takes from another by its retention policies, recorded in merge commits.
//!
//! A merge that left keys out says so in its message: the other branch is a parent of the commit, although the commit lacks those
//! keys. Later merges of the commit must take them as unchanged, not as deleted.
//!
//! ```
//! use gitcd_core::scope::Scope;
//!
//! let scope = Scope::new("^/registry/(pods|nodes)/", "^/registry/pods/kube-system/")?;
//! assert!(scope.covers(b"/registry/pods/default/web"));
//! assert!(!scope.covers(b"/registry/pods/kube-system/dns"));
//! assert!(!scope.covers(b"/registry/secrets/default/s"));
//! # Ok::<(), regex::Error>(())
//! ```

use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::str::FromStr;

use regex::bytes::{Regex, RegexBuilder};

/// The expression that includes all keys.
pub const EVERYTHING: &str = ".*";
/// The expression that excludes no key.
pub const NOTHING: &str = "^$";

/// The largest compiled expression, in bytes: merge commits are untrusted input.
const SIZE_LIMIT: usize = 1 << 20;

/// A set of keys: those that match `include`, do not match `exclude`, and are not listed as exceptions.
#[derive(Clone, Debug)]
pub struct Scope {
    include: Option<Regex>,
    exclude: Option<Regex>,
    /// Keys that were rejected.
    except: BTreeSet<Vec<u8>>,
}

impl Default for Scope {
    /// Returns the scope of all keys.
    fn default() -> Self {
        Self { include: None, exclude: None, except: BTreeSet::new() }
    }
}

impl PartialEq for Scope {
    fn eq(&self, other: &Self) -> bool {
        let text = |regex: &Option<Regex>| regex.as_ref().map(|regex| regex.as_str().to_owned());
        text(&self.include) == text(&other.include)
            && text(&self.exclude) == text(&other.exclude)
            && self.except == other.except
    }
}

impl Eq for Scope {}

fn compile(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(SIZE_LIMIT).build()
}

impl Scope {
    /// Creates a scope of the keys that match `include` and not `exclude`. Both match anywhere in the whole key.
    ///
    /// # Errors
    /// An expression is invalid or too large.
    pub fn new(include: &str, exclude: &str) -> Result<Self, regex::Error> {
        let include = (!matches!(include, EVERYTHING | "" | "^.*$")).then(|| compile(include)).transpose()?;
        let exclude = (!matches!(exclude, NOTHING | "")).then(|| compile(exclude)).transpose()?;
        Ok(Self { include, exclude, except: BTreeSet::new() })
    }

    /// Returns whether all keys are in scope.
    pub fn is_everything(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.except.is_empty()
    }

    /// Returns whether `key` is in scope.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(key))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(key))
            && !self.except.contains(key)
    }

    /// Adds an exception: removes `key` from the scope.
    pub fn leave_out(&mut self, key: &[u8]) {
        self.except.insert(key.to_vec());
    }

    /// Returns whether there are exceptions.
    pub fn has_exceptions(&self) -> bool {
        !self.except.is_empty()
    }

    /// Returns the scope without its exceptions.
    #[must_use]
    pub fn policy(&self) -> Self {
        Self { except: BTreeSet::new(), ..self.clone() }
    }

    /// Formats the trailers of a merge commit: what it left out of `theirs`.
    pub fn trailers(&self, theirs: impl Display) -> String {
        let mut text = format!("Scope-Of: {theirs}\n");
        if let Some(include) = &self.include {
            writeln!(text, "Scope-Include: {}", escape(include.as_str().as_bytes()))
                .expect("writing to a string does not fail");
        }
        if let Some(exclude) = &self.exclude {
            writeln!(text, "Scope-Exclude: {}", escape(exclude.as_str().as_bytes()))
                .expect("writing to a string does not fail");
        }
        for key in &self.except {
            writeln!(text, "Scope-Without: {}", escape(key)).expect("writing to a string does not fail");
        }
        text
    }

    /// Parses a merge commit's message: the parent that was not merged whole, and the scope of the merge. `None` if the message
    /// has no scope, or none that can be parsed.
    pub fn parse<Id: FromStr>(message: &[u8]) -> Option<(Id, Self)> {
        let message = std::str::from_utf8(message).ok()?;
        let lines = || message.lines().rev().take_while(|line| !line.is_empty());
        let values =
            |name: &'static str| lines().filter_map(move |line| unescape(line.strip_prefix(name)?.strip_prefix(": ")?));
        let text = |name| values(name).next().and_then(|value| String::from_utf8(value).ok());
        let of = text("Scope-Of")?.parse().ok()?;
        let include = text("Scope-Include").unwrap_or_else(|| EVERYTHING.into());
        let exclude = text("Scope-Exclude").unwrap_or_else(|| NOTHING.into());
        let mut scope = Self::new(&include, &exclude).ok()?;
        scope.except = values("Scope-Without").collect();
        Some((of, scope))
    }
}

/// Escapes bytes as one line of text: `%`, control characters and non-ASCII bytes become `%XX`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0x20..=0x7e if *byte != b'%' => text.push(char::from(*byte)),
            byte => write!(text, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    text
}

/// Returns the bytes that [`escape`] was given; `None` if it did not write `text`.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first == b'%' {
            let (digits, behind) = rest.split_first_chunk::<2>()?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = behind;
        } else {
            bytes.push(*first);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merge_commit_records_its_scope() {
        let oid = "07".repeat(20);
        let mut scope = Scope::new("^/a/[%\u{e9}]", "b$").unwrap();
        scope.leave_out(b"/a/%\n");
        let message = format!("merge x and y\n\nConflict: Scope-Of: no\n\n{}", scope.trailers(&oid));
        assert_eq!(Scope::parse(message.as_bytes()), Some((oid, scope)));
        assert_eq!(Scope::parse::<String>(b"merge x\n\nRevision: 3\n"), None);
    }

    #[test]
    fn the_published_defaults_are_everything() {
        assert!(Scope::new(EVERYTHING, NOTHING).unwrap().is_everything());
        assert!(Scope::new("(", NOTHING).is_err());
    }
}

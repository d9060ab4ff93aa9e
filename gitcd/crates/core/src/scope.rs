//! Which keys a branch takes from another: retention policies, and what merge commits say of them.
//!
//! A merge that left keys out says so in its message, because the commit has the other branch as a parent although it does not have
//! those keys: whoever merges it back must take them as unchanged, not as deleted.
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

/// What takes everything.
pub const EVERYTHING: &str = ".*";
/// What takes nothing.
pub const NOTHING: &str = "^$";

/// The largest compiled expression, in bytes: merge commits come from others.
const SIZE_LIMIT: usize = 1 << 20;

/// A set of keys: those that match `include`, not `exclude`, and are not named one by one.
#[derive(Clone, Debug)]
pub struct Scope {
    include: Option<Regex>,
    exclude: Option<Regex>,
    /// Keys that were refused.
    except: BTreeSet<Vec<u8>>,
}

impl Default for Scope {
    /// Everything.
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
    /// Keys that match `include` and not `exclude`. Both are searched for anywhere in the whole key.
    ///
    /// # Errors
    /// An expression cannot be read, or is too large.
    pub fn new(include: &str, exclude: &str) -> Result<Self, regex::Error> {
        let include = (!matches!(include, EVERYTHING | "" | "^.*$")).then(|| compile(include)).transpose()?;
        let exclude = (!matches!(exclude, NOTHING | "")).then(|| compile(exclude)).transpose()?;
        Ok(Self { include, exclude, except: BTreeSet::new() })
    }

    /// Whether all keys are in it.
    pub fn is_everything(&self) -> bool {
        self.include.is_none() && self.exclude.is_none() && self.except.is_empty()
    }

    /// Whether a key is in it.
    pub fn covers(&self, key: &[u8]) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(key))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(key))
            && !self.except.contains(key)
    }

    /// Leaves one more key out.
    pub fn leave_out(&mut self, key: &[u8]) {
        self.except.insert(key.to_vec());
    }

    /// Whether keys were named one by one.
    pub fn has_exceptions(&self) -> bool {
        !self.except.is_empty()
    }

    /// The same set without the keys that were named one by one.
    #[must_use]
    pub fn policy(&self) -> Self {
        Self { except: BTreeSet::new(), ..self.clone() }
    }

    /// As trailers of a merge commit: what it left out of `theirs`.
    pub fn trailers(&self, theirs: impl Display) -> String {
        let mut text = format!("Scope-Of: {theirs}\n");
        if let Some(include) = &self.include {
            writeln!(text, "Scope-Include: {}", escape(include.as_str().as_bytes()))
                .expect("a string takes everything");
        }
        if let Some(exclude) = &self.exclude {
            writeln!(text, "Scope-Exclude: {}", escape(exclude.as_str().as_bytes()))
                .expect("a string takes everything");
        }
        for key in &self.except {
            writeln!(text, "Scope-Without: {}", escape(key)).expect("a string takes everything");
        }
        text
    }

    /// What a merge commit's message says: the parent that was not taken whole, and what was taken of it. `None` if it says
    /// nothing, or nothing that can be understood.
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

/// One line of text: control characters, bytes that are no text and `%` as `%XX`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            0x20..=0x7e if *byte != b'%' => text.push(char::from(*byte)),
            byte => write!(text, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    text
}

/// The bytes of what [`escape`] wrote; `None` if it did not.
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
    fn a_merge_commit_tells_its_scope() {
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

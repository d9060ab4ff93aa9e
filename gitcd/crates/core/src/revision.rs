//! The revisions of a branch.

use std::fmt;

/// Position in the key space; an empty store is at 1, and every write transaction adds one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(i64);

impl Revision {
    /// Before all revisions; no stored key-value pair has it.
    pub const ZERO: Self = Self(0);
    /// The revision of an empty store, as in etcd: the first write gets revision 2.
    pub const INITIAL: Self = Self(1);

    /// The highest revision that is accepted from a file or from Git, which leaves a quarter of the range for later writes and
    /// jumps. No store gets there by itself, nor by a restore with a bump, which goes up to half.
    pub const MAX_STORED: Self = Self(i64::MAX / 4 * 3);

    /// Wraps a number from the wire or from disk.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Returns the number for the wire or for disk.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Returns the revision of the next write.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the number of writes after an older revision up to this one; 0 if it is not older.
    pub const fn since(self, older: Self) -> usize {
        if self.0 > older.0 { (self.0 - older.0) as usize } else { 0 }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

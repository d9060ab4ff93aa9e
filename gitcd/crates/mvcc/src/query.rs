//! Reads: what is asked, and the answer before it becomes protobuf.

use std::sync::Arc;

use gitcd_core::revision::Revision;
use gitcd_journal::Segments;

use super::Error;
use super::index::{Index, KeyRange};
use super::version::Version;

/// What an operation reads: the index as it was at a revision, with the values that have left memory.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub index: &'a Index,
    pub at: Revision,
    pub segments: &'a Segments,
}

/// A range read with all of etcd's options.
#[derive(Clone, Debug)]
pub struct Range {
    /// The keys.
    pub keys: KeyRange,
    /// The revision to read at; `None` is the newest.
    pub revision: Option<Revision>,
    /// At most so many pairs; 0 is no limit.
    pub limit: usize,
    /// Count only, no pairs.
    pub count_only: bool,
    /// What to sort by; `None` is by key, ascending.
    pub sort: Option<Sort>,
    /// Revisions outside these are left out (but counted).
    pub filter: Filter,
    /// How many keys the range has at this revision, if that is known: it is not counted then.
    pub known_count: Option<usize>,
}

/// An order other than by ascending key.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// By what.
    pub by: SortBy,
    /// Highest first.
    pub descending: bool,
    /// Only the target was asked for, no order: etcd then sorts what the limit lets through, and one more.
    pub after_limit: bool,
}

/// etcd's sort targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
    /// The key.
    Key,
    /// The version.
    Version,
    /// The revision of creation.
    Create,
    /// The revision of the last change.
    Mod,
    /// The value.
    Value,
}

/// Bounds on revisions, inclusive; 0 is no bound.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Filter {
    pub min_mod: i64,
    pub max_mod: i64,
    pub min_create: i64,
    pub max_create: i64,
}

impl Filter {
    /// Whether it lets everything through.
    pub fn is_none(&self) -> bool {
        self.min_mod == 0 && self.max_mod == 0 && self.min_create == 0 && self.max_create == 0
    }

    fn passes(&self, version: &Version) -> bool {
        let within = |number: i64, min: i64, max: i64| (min == 0 || number >= min) && (max == 0 || number <= max);
        within(version.mod_revision.get(), self.min_mod, self.max_mod)
            && within(version.create_revision.get(), self.min_create, self.max_create)
    }
}

/// The answer to a [`Range`].
#[derive(Clone, Debug)]
pub struct Found {
    /// The revision that the read's header carries.
    pub revision: Revision,
    /// The pairs, in the asked order.
    pub pairs: Vec<Arc<Version>>,
    /// There are more than the limit let through.
    pub more: bool,
    /// All keys in the range, whatever limit and filter say.
    pub count: usize,
}

impl Range {
    /// Checks the asked revision against what the store has.
    pub(super) fn check(&self, current: Revision, compacted: Revision) -> Result<(), Error> {
        match self.revision {
            Some(asked) if asked > current => Err(Error::Future),
            Some(asked) if asked < compacted => Err(Error::Compacted),
            _ => Ok(()),
        }
    }

    /// Answers from the view or, if asked, from an older revision of it. Walks the whole range, since etcd counts all
    /// of it.
    ///
    /// # Errors
    /// [`Error::ValueLost`] if values that it sorts by cannot be read back.
    pub(super) fn answer(&self, view: View) -> Result<Found, Error> {
        let at = self.revision.unwrap_or(view.at);
        self.select(view.at, view.index.range(&self.keys, at), view.segments)
    }

    /// The same over pairs that are given in the order of their keys.
    ///
    /// # Errors
    /// As for [`Range::answer`].
    pub(super) fn select<'a>(
        &self,
        current: Revision,
        mut all: impl Iterator<Item = &'a Arc<Version>>,
        segments: &Segments,
    ) -> Result<Found, Error> {
        let mut found = Found { revision: current, pairs: Vec::new(), more: false, count: 0 };
        let all_needed = self.sort.is_some_and(|sort| !sort.after_limit) || !self.filter.is_none();
        let wanted = match self.limit {
            _ if self.count_only => 0,
            0 => usize::MAX,
            _ if all_needed => usize::MAX,
            limit => limit.saturating_add(1),
        };
        while found.pairs.len() < wanted
            && let Some(version) = all.next()
        {
            found.count += 1;
            if self.filter.is_none() || self.filter.passes(version) {
                found.pairs.push(version.clone());
            }
        }
        // The rest is only counted, which looks at no pair.
        found.count = self.known_count.unwrap_or_else(|| found.count + all.count());
        if self.count_only {
            return Ok(found);
        }
        if let Some(sort) = self.sort {
            sort.apply(&mut found.pairs, segments)?;
        }
        found.more = self.limit > 0 && found.pairs.len() > self.limit;
        if found.more {
            found.pairs.truncate(self.limit);
        }
        Ok(found)
    }
}

impl Sort {
    fn apply(self, pairs: &mut Vec<Arc<Version>>, segments: &Segments) -> Result<(), Error> {
        match self.by {
            SortBy::Key => self.sort(pairs, |version| version.key.clone()),
            SortBy::Version => self.sort(pairs, |version| version.version),
            SortBy::Create => self.sort(pairs, |version| version.create_revision),
            SortBy::Mod => self.sort(pairs, |version| version.mod_revision),
            SortBy::Value => {
                // Old values may have left memory: each is read once.
                let valued = pairs.drain(..).map(|version| Ok((version.value(segments)?, version)));
                let mut valued = valued.collect::<Result<Vec<_>, Error>>()?;
                self.sort(&mut valued, |(value, _)| value.clone());
                pairs.extend(valued.into_iter().map(|(_, version)| version));
            }
        }
        Ok(())
    }

    /// Stable, as etcd's: equal ones stay in the order of their keys (reversed order included).
    fn sort<T, K: Ord>(self, pairs: &mut [T], by: impl Fn(&T) -> K) {
        if self.descending {
            pairs.sort_by_key(|pair| std::cmp::Reverse(by(pair)));
        } else {
            pairs.sort_by_key(by);
        }
    }
}

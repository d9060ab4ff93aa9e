//! Range reads: requests, and answers before they become protobuf.

use std::sync::Arc;

use gitcd_core::revision::Revision;
use gitcd_journal::Segments;

use super::Error;
use super::index::{Index, KeyRange};
use super::version::Version;

/// The input of a read: the index at a revision, and the journal's segments for evicted values.
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
    /// Maximum number of key-value pairs; 0 is no limit.
    pub limit: usize,
    /// Return only the count.
    pub count_only: bool,
    /// The sort order; `None` is by key, ascending.
    pub sort: Option<Sort>,
    /// Pairs with revisions outside these bounds are omitted (but counted).
    pub filter: Filter,
    /// The number of keys in the range at this revision, if known, to avoid counting them.
    pub known_count: Option<usize>,
}

/// An order other than by ascending key.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    /// The sort target.
    pub by: SortBy,
    /// Whether to sort in descending order.
    pub descending: bool,
    /// A target without an order was requested: etcd then sorts after applying the limit, with one more pair.
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

/// Bounds on revisions, inclusive; 0 is unbounded.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are etcd's")]
pub struct Filter {
    pub min_mod: i64,
    pub max_mod: i64,
    pub min_create: i64,
    pub max_create: i64,
}

impl Filter {
    /// Returns whether the filter has no bounds.
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
    /// The revision for the response header.
    pub revision: Revision,
    /// The key-value pairs, in the requested order.
    pub pairs: Vec<Arc<Version>>,
    /// Whether there are more pairs than the limit.
    pub more: bool,
    /// Number of all keys in the range, regardless of limit and filter.
    pub count: usize,
}

impl Range {
    /// Checks the requested revision against the store.
    pub(super) fn check(&self, current: Revision, compacted: Revision) -> Result<(), Error> {
        // As in etcd, it is -1 in a store that was never compacted, which only a negative revision is below.
        let compacted = if compacted == Revision::ZERO { Revision::new(-1) } else { compacted };
        match self.revision {
            Some(asked) if asked > current => Err(Error::Future),
            Some(asked) if asked < compacted => Err(Error::Compacted),
            _ => Ok(()),
        }
    }

    /// Returns the requested revision; `None` for the current one, which a negative revision means as well.
    pub(super) fn requested(&self) -> Option<Revision> {
        self.revision.filter(|asked| *asked > Revision::ZERO)
    }

    /// Answers at the view's revision, or at an older one if requested. Walks the whole range, since etcd counts all of it.
    ///
    /// # Errors
    /// [`Error::ValueLost`] if values to sort by cannot be read back.
    pub(super) fn answer(&self, view: View) -> Result<Found, Error> {
        let at = self.requested().unwrap_or(view.at);
        self.select(view.at, view.index.range(&self.keys, at), view.segments)
    }

    /// Answers from versions in key order that are not in the index, such as those of a compacted revision. Their values are in
    /// memory.
    ///
    /// # Panics
    /// If a value is not in memory.
    pub fn of_versions(&self, current: Revision, versions: &[Arc<Version>]) -> Found {
        self.select(current, versions.iter(), &Segments::default()).expect("the values are in memory")
    }

    /// Does the same for versions given in key order.
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
        // The rest is only counted, without looking at the versions.
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
                // Old values may be evicted: read each one once.
                let valued = pairs.drain(..).map(|version| Ok((version.value(segments)?, version)));
                let mut valued = valued.collect::<Result<Vec<_>, Error>>()?;
                self.sort(&mut valued, |(value, _)| value.clone());
                pairs.extend(valued.into_iter().map(|(_, version)| version));
            }
        }
        Ok(())
    }

    /// Sorts stably, as etcd does: equal elements stay in key order (also if descending).
    fn sort<T, K: Ord>(self, pairs: &mut [T], by: impl Fn(&T) -> K) {
        if self.descending {
            pairs.sort_by_key(|pair| std::cmp::Reverse(by(pair)));
        } else {
            pairs.sort_by_key(by);
        }
    }
}

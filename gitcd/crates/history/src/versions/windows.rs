//! The intervals between flushes in which a key may have changed.

use git2::Odb;
use gitcd_repo::lookup::{Known, Lookup};

use super::Key;
use crate::flush::Flush;
use crate::when::When;
use crate::{CommitInfo, History, HistoryError, known};

/// The interval between two flushes, and what they say about a key.
pub(super) struct Window {
    pub(super) older: Option<Flush>,
    pub(super) newer: Flush,
    pub(super) before: Option<Known>,
    pub(super) now: Option<Known>,
}

/// The intervals in which a key may have changed, newest first.
pub(super) struct Windows<'h> {
    history: &'h History,
    odb: Odb<'h>,
    lookup: Lookup,
    since: Option<When>,
    /// The flush at which the next interval ends or that follows it, and what it says about the key.
    next: Option<(Flush, Option<Known>)>,
}

impl<'h> Windows<'h> {
    /// Begins with the last flush. Intervals that end before `since` are left out.
    pub(super) fn new(history: &'h History, key: &Key<'_>, since: Option<When>) -> Result<Self, HistoryError> {
        let (odb, mut lookup) = (history.odb()?, Lookup::new(key.whole));
        let now = known(&mut lookup, &odb, &history.tip)?;
        Ok(Self { history, odb, lookup, since, next: Some((history.tip.clone(), now)) })
    }

    fn step(&mut self) -> Result<Option<Window>, HistoryError> {
        let Some((newer, now)) = self.next.take() else { return Ok(None) };
        let (first, older) = self.back(newer, now)?;
        if self.since.is_some_and(|since| first.is_before(since)) {
            return Ok(None);
        }
        let before = match &older {
            Some(older) => known(&mut self.lookup, &self.odb, older)?,
            None => None,
        };
        self.next = older.clone().map(|older| (older, before));
        Ok(Some(Window { older, newer: first, before, now }))
    }

    /// Returns the first flush in which the key is as in `newer`, and the flush before it.
    fn back(&mut self, newer: Flush, now: Option<Known>) -> Result<(Flush, Option<Flush>), HistoryError> {
        let mut first = newer;
        loop {
            let Some(older) = self.history.before(&self.odb, &first)? else { return Ok((first, None)) };
            let is_same = match now {
                // A store that resumes from Git jumps ahead; revisions only go back if the branch was created anew.
                Some(known) => older.revision >= known.record.mod_revision && older.revision <= first.revision,
                // The key may have been created and deleted in between.
                None => {
                    known(&mut self.lookup, &self.odb, &older)?.is_none() && is_one_commit(&self.odb, &older, &first)?
                }
            };
            if !is_same {
                return Ok((first, Some(older)));
            }
            first = older;
        }
    }
}

impl Iterator for Windows<'_> {
    type Item = Result<Window, HistoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

/// Returns whether there is at most one data commit between two flushes.
fn is_one_commit(odb: &Odb<'_>, older: &Flush, newer: &Flush) -> Result<bool, HistoryError> {
    Ok(newer.data == older.data || CommitInfo::read(odb, newer.data)?.parents == [older.data])
}

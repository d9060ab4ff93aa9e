//! The flushes of a branch, read as far back as a walk needs them.

use std::collections::HashMap;

use git2::{Odb, Oid};

use crate::flush::Flush;
use crate::{History, HistoryError};

/// The flushes of a branch, newest first.
pub(super) struct Flushes<'h> {
    history: &'h History,
    read: Vec<Flush>,
    /// The oldest flush read so far that describes a data commit.
    by_data: HashMap<Oid, usize>,
    is_complete: bool,
}

impl<'h> Flushes<'h> {
    pub(super) fn new(history: &'h History, newest: impl IntoIterator<Item = Flush>) -> Self {
        let mut flushes = Self { history, read: Vec::new(), by_data: HashMap::new(), is_complete: false };
        newest.into_iter().for_each(|flush| flushes.push(flush));
        flushes
    }

    fn push(&mut self, flush: Flush) {
        self.by_data.insert(flush.data, self.read.len());
        self.read.push(flush);
    }

    fn read_more(&mut self, odb: &Odb<'_>) -> Result<bool, HistoryError> {
        let Some(last) = self.read.last().filter(|_| !self.is_complete) else { return Ok(false) };
        let before = self.history.before(odb, last)?;
        self.is_complete = before.is_none();
        before.into_iter().for_each(|flush| self.push(flush));
        Ok(!self.is_complete)
    }

    /// Returns the flush at an index; `None` beyond the first one, or where a shallow clone ends.
    pub(super) fn get(&mut self, odb: &Odb<'_>, at: usize) -> Result<Option<&Flush>, HistoryError> {
        while at >= self.read.len() && self.read_more(odb)? {}
        Ok(self.read.get(at))
    }

    /// Returns the index of the flush that describes a data commit, if there is one. Reads the flushes back to the time of the
    /// commit.
    pub(super) fn of_data(&mut self, odb: &Odb<'_>, data: Oid, time: i64) -> Result<Option<usize>, HistoryError> {
        while self.read.last().is_some_and(|last| last.time >= time) && self.read_more(odb)? {}
        Ok(self.by_data.get(&data).copied())
    }
}

//! The walk from the fields of a version back to the commits that wrote them.
//!
//! A field moves to the parent that has it with the same value. On this branch's own line, the walk jumps: the metadata records
//! the revision of the last change of the key, so all flushes since then are skipped, and within a flush the subjects of the
//! commits show which of them may have changed the key. Commits of other branches are visited one by one, newest first.
//! `docs/design/history.md` has the reasons and the cost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use git2::{Odb, Oid};
use gitcd_repo::changes::Finder;
use gitcd_repo::lookup::Lookup;

use super::carry::Fields;
use super::decide::{Decider, Decision};
use super::flushes::Flushes;
use super::versions::Versions;
use crate::named::Named;
use crate::{CommitInfo, History, HistoryError};

/// A commit that wrote fields.
#[derive(Clone, Debug)]
pub(super) struct FieldWriter {
    pub(super) commit: Rc<CommitInfo>,
    /// The value of the key before and after the commit.
    pub(super) values: [Option<Oid>; 2],
    /// The index of a flush of this branch that has the commit, if known: of the oldest one, unless histories were merged with it.
    pub(super) flush: Option<usize>,
    /// Whether a shallow clone ends here, so that the commit may have the fields from an earlier one.
    pub(super) is_boundary: bool,
}

/// The commits that wrote fields.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// By field; several only if branches wrote the same value independently.
    pub(super) written: BTreeMap<usize, BTreeSet<Oid>>,
    pub(super) writers: HashMap<Oid, FieldWriter>,
}

impl Walked {
    pub(super) fn blame(
        &mut self,
        commit: &Rc<CommitInfo>,
        values: [Option<Oid>; 2],
        fields: Vec<usize>,
        flush: Option<usize>,
        is_boundary: bool,
    ) {
        if fields.is_empty() {
            return;
        }
        let writer = FieldWriter { commit: Rc::clone(commit), values, flush, is_boundary };
        let known = self.writers.entry(commit.oid).or_insert(writer);
        known.flush = known.flush.max(flush);
        for number in fields {
            self.written.entry(number).or_default().insert(commit.oid);
        }
    }
}

/// The key whose history is walked.
pub(super) struct Key<'k> {
    pub(super) whole: &'k [u8],
    /// The key's path part.
    pub(super) relative: &'k [u8],
}

/// Fields that have to be found in the history of a commit.
struct Arrival {
    commit: Rc<CommitInfo>,
    blob: Oid,
    fields: Fields,
    flush: Option<usize>,
}

/// Numbers of fields that were looked for in the history of a commit.
#[derive(Default)]
struct Seen(Vec<u64>);

impl Seen {
    /// Adds fields; keeps those that are new.
    fn add(&mut self, fields: &mut Fields) {
        fields.retain(|number, _| {
            let (word, bit) = (number / 64, 1 << (number % 64));
            if self.0.len() <= word {
                self.0.resize(word + 1, 0);
            }
            let is_new = self.0[word] & bit == 0;
            self.0[word] |= bit;
            is_new
        });
    }
}

pub(super) struct Walk<'h> {
    history: &'h History,
    odb: Odb<'h>,
    named: Option<Named>,
    lookup: Lookup,
    finder: Finder<'h>,
    flushes: Flushes<'h>,
    /// The commits to visit, newest first, so that nearly all are visited after all of their children.
    waiting: BTreeSet<(i64, Oid)>,
    arrivals: HashMap<Oid, Arrival>,
    seen: HashMap<Oid, Seen>,
    decider: Decider<'h>,
    walked: Walked,
}

impl<'h> Walk<'h> {
    pub(super) fn new(
        history: &'h History,
        key: &Key<'_>,
        flushes: Flushes<'h>,
        decider: Decider<'h>,
    ) -> Result<Self, HistoryError> {
        Ok(Self {
            history,
            odb: history.odb()?,
            named: Named::new(key.relative),
            lookup: Lookup::new(key.whole),
            finder: Finder::new(history.odb()?, key.relative),
            flushes,
            waiting: BTreeSet::new(),
            arrivals: HashMap::new(),
            seen: HashMap::new(),
            decider,
            walked: Walked::default(),
        })
    }

    /// Finds the writers of fields of the value `blob` in `commit`. `flush` is the index of the flush with which the commit was
    /// written, if it is a commit of this branch.
    pub(super) fn run(
        &mut self,
        commit: Oid,
        blob: Oid,
        fields: Fields,
        flush: Option<usize>,
        versions: &mut Versions<'h>,
    ) -> Result<(), HistoryError> {
        let commit = Rc::new(CommitInfo::read(&self.odb, commit)?);
        match flush {
            // Not yet at the data of a flush: within one.
            Some(at)
                if self.is_linear(at)?
                    && self.flushes.get(&self.odb, at)?.is_some_and(|flush| flush.data != commit.oid) =>
            {
                if let Some((blob, fields)) = self.window(at, commit, blob, fields, versions)? {
                    self.follow_branch(at + 1, blob, fields, versions)?;
                }
            }
            _ => self.enqueue(commit, blob, fields, flush),
        }
        while let Some((_, oid)) = self.waiting.pop_last() {
            let Some(arrival) = self.arrivals.remove(&oid) else { continue };
            let Arrival { commit, blob, fields, flush } = arrival;
            match self.flushes.of_data(&self.odb, oid, commit.time)? {
                Some(at) => self.follow_branch(at, blob, fields, versions)?,
                None => self.visit(&commit, blob, fields, flush, versions)?,
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, commit: Rc<CommitInfo>, blob: Oid, fields: Fields, flush: Option<usize>) {
        if fields.is_empty() {
            return;
        }
        self.waiting.insert((commit.time, commit.oid));
        let arrival =
            self.arrivals.entry(commit.oid).or_insert_with(|| Arrival { commit, blob, fields: Fields::new(), flush });
        arrival.flush = arrival.flush.max(flush);
        for (number, at) in fields {
            arrival.fields.entry(number).or_insert(at);
        }
    }

    /// Returns whether all commits of a flush are this branch's own, one after the other.
    fn is_linear(&mut self, at: usize) -> Result<bool, HistoryError> {
        let is_joined = self.flushes.get(&self.odb, at)?.is_none_or(|flush| !flush.joins.is_empty());
        Ok(!is_joined && self.flushes.get(&self.odb, at + 1)?.is_some())
    }

    /// Follows this branch from the data of a flush on, and jumps over the flushes in which the key did not change.
    fn follow_branch(
        &mut self,
        mut at: usize,
        blob: Oid,
        fields: Fields,
        versions: &mut Versions<'h>,
    ) -> Result<(), HistoryError> {
        let (mut blob, mut fields) = (blob, fields);
        let mut changed = None;
        loop {
            let Some(newer) = self.flushes.get(&self.odb, at)?.cloned() else { return Ok(()) };
            if self.is_linear(at)? {
                let since = match changed {
                    Some(since) => since,
                    None => crate::known(&mut self.lookup, &self.odb, &newer)?.map(|known| known.record.mod_revision),
                };
                let older = self.flushes.get(&self.odb, at + 1)?;
                // A store that resumes from Git jumps ahead; revisions only go back if the branch was created anew.
                let is_same = older.is_some_and(|older| {
                    older.data == newer.data
                        || since.is_some_and(|since| (since..=newer.revision).contains(&older.revision))
                });
                if is_same {
                    changed = Some(since);
                    at += 1;
                    continue;
                }
            }
            self.seen.entry(newer.data).or_default().add(&mut fields);
            if fields.is_empty() {
                return Ok(());
            }
            let commit = Rc::new(CommitInfo::read(&self.odb, newer.data)?);
            if !self.is_linear(at)? {
                return self.visit_parents(&commit, blob, &fields, Some(at), versions);
            }
            match self.window(at, commit, blob, fields, versions)? {
                Some(rest) => (blob, fields) = rest,
                None => return Ok(()),
            }
            (at, changed) = (at + 1, None);
        }
    }

    /// Returns the revision at which the key was created, if it exists in a flush.
    fn created(&mut self, at: usize) -> Result<Option<i64>, HistoryError> {
        let Some(flush) = self.flushes.get(&self.odb, at)? else { return Ok(None) };
        Ok(crate::known(&mut self.lookup, &self.odb, flush)?.map(|known| known.record.create_revision))
    }

    /// Follows the commits of a flush from `commit` on. Returns the value and the fields that the previous flush has, if any.
    fn window(
        &mut self,
        at: usize,
        mut commit: Rc<CommitInfo>,
        blob: Oid,
        fields: Fields,
        versions: &mut Versions<'h>,
    ) -> Result<Option<(Oid, Fields)>, HistoryError> {
        let older = self.flushes.get(&self.odb, at + 1)?.map(|older| (older.data, older.revision));
        let (until, since) = older.unzip();
        let created = self.created(at)?.filter(|created| since.is_some_and(|since| *created > since));
        let (mut blob, mut fields) = (blob, fields);
        while Some(commit.oid) != until {
            self.history.proceed()?;
            let own = commit.revisions().filter(|_| commit.parents.len() == 1);
            if let (Some(created), Some(own)) = (created, own)
                && (own.first..=own.last).contains(&created)
            {
                // The key may have been deleted by the same commit, so that its file did not change.
                self.walked.blame(&commit, [None, Some(blob)], fields.into_keys().collect(), Some(at), false);
                return Ok(None);
            }
            let [parent] = commit.parents[..] else {
                self.visit_parents(&commit, blob, &fields, Some(at), versions)?;
                return Ok(None);
            };
            if self.history.is_cut(&self.odb, parent) {
                self.visit_parents(&commit, blob, &fields, Some(at), versions)?;
                return Ok(None);
            }
            let before = Rc::new(CommitInfo::read(&self.odb, parent)?);
            let is_plain = commit.revisions().is_some();
            if !is_plain || self.named.as_ref().is_none_or(|named| named.may_be_in(commit.subject())) {
                let there = self.finder.find(before.tree)?;
                if there != Some(blob) {
                    let carried = versions.carried(blob, there, &fields)?;
                    self.walked.blame(&commit, [there, Some(blob)], missing(&fields, &carried), Some(at), false);
                    let Some(there) = there.filter(|_| !carried.is_empty()) else { return Ok(None) };
                    (blob, fields) = (there, carried);
                }
            }
            commit = before;
        }
        Ok(Some((blob, fields)))
    }

    /// Visits a commit unless its history was searched for these fields already.
    fn visit(
        &mut self,
        commit: &Rc<CommitInfo>,
        blob: Oid,
        mut fields: Fields,
        flush: Option<usize>,
        versions: &mut Versions<'h>,
    ) -> Result<(), HistoryError> {
        self.seen.entry(commit.oid).or_default().add(&mut fields);
        if fields.is_empty() { Ok(()) } else { self.visit_parents(commit, blob, &fields, flush, versions) }
    }

    /// Passes fields on to the parents that have them; the commit wrote the others.
    fn visit_parents(
        &mut self,
        commit: &Rc<CommitInfo>,
        blob: Oid,
        fields: &Fields,
        flush: Option<usize>,
        versions: &mut Versions<'h>,
    ) -> Result<(), HistoryError> {
        self.history.proceed()?;
        // A merge may have left the key out of a parent.
        let is_merge = commit.parents.len() > 1;
        let counted = if is_merge { self.decider.graph.parents(commit.oid)? } else { commit.parents.clone() };
        let mut parents = Vec::new();
        for oid in &counted {
            if !self.history.is_cut(&self.odb, *oid) {
                let parent = Rc::new(CommitInfo::read(&self.odb, *oid)?);
                let there = self.finder.find(parent.tree)?;
                let carried = versions.carried(blob, there, fields)?;
                parents.push((parent, there, carried));
            }
        }
        let is_boundary = parents.len() < counted.len();
        let made: Vec<usize> = fields
            .keys()
            .copied()
            .filter(|number| !parents.iter().any(|(.., carried)| carried.contains_key(number)))
            .collect();
        let before = if let [(_, there, _)] = &parents[..] { *there } else { None };
        self.walked.blame(commit, [before, Some(blob)], made, flush, is_boundary);
        self.choose_parents((commit, blob, fields), &mut parents, versions)?;
        for (parent, there, carried) in parents {
            if let Some(there) = there {
                self.enqueue(parent, there, carried, flush);
            }
        }
        Ok(())
    }

    /// Keeps each field that both parents of a merge have only with the parent whose history has the last edit.
    fn choose_parents(
        &mut self,
        (merge, blob, merged): (&CommitInfo, Oid, &Fields),
        parents: &mut [(Rc<CommitInfo>, Option<Oid>, Fields)],
        versions: &mut Versions<'h>,
    ) -> Result<(), HistoryError> {
        let [(one, _, ours), (other, _, theirs)] = parents else { return Ok(()) };
        let both = merged.iter().filter(|(number, _)| ours.contains_key(number) && theirs.contains_key(number));
        let both: Fields = both.map(|(number, at)| (*number, at.clone())).collect();
        if both.is_empty() {
            return Ok(());
        }
        let decisions = self.decider.decide((merge, blob), [one.oid, other.oid], &both, versions)?;
        for (number, decision) in both.into_keys().zip(decisions) {
            match decision {
                Decision::First => drop(theirs.remove(&number)),
                Decision::Second => drop(ours.remove(&number)),
                Decision::Either => {}
            }
        }
        Ok(())
    }

    /// Returns the result, and what was read.
    pub(super) fn into_parts(self) -> (Walked, Flushes<'h>, Decider<'h>) {
        (self.walked, self.flushes, self.decider)
    }
}

/// Returns the fields that were not carried to the parent.
pub(super) fn missing(fields: &Fields, carried: &Fields) -> Vec<usize> {
    fields.keys().copied().filter(|number| !carried.contains_key(number)).collect()
}

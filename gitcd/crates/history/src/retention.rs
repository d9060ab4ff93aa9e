//! Where a history can be cut so that the current state, and all that later merges need, stays.
//!
//! A cut is made at a flush: its two commits become the oldest ones. Commits keep their IDs: the oldest ones are the
//! [boundary](gitcd_repo::boundary) of the history, so they only lose their parents.
//!
//! Source: `docs/design/retention.md`.

use std::collections::BTreeMap;

use git2::Oid;
use gitcd_repo::graph::{CutPlan, Graph, GraphError};

use super::flush::Flush;
use super::when::When;
use super::{CommitInfo, History, HistoryError};

mod lineage;

use lineage::Lineage;

/// Which part of the history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// What was committed since this moment, and the state at it.
    Since(When),
    /// At least so many of the last data commits of this branch.
    Commits(usize),
}

/// A cut of a history.
#[derive(Clone, Debug)]
pub struct PlannedCut {
    /// The oldest revision that is kept.
    pub revision: i64,
    /// When it was committed, in seconds since 1970.
    pub time: i64,
    /// The data commit with this revision.
    pub data: Oid,
    /// The metadata commit that describes it.
    pub metadata: Oid,
    /// The commits that lose their parents, and those that are removed.
    pub plan: CutPlan,
}

/// What can be removed of a history.
#[derive(Clone, Debug)]
pub struct Cuttable {
    /// The cut before which everything can be removed; `None` if nothing can.
    pub cut: Option<PlannedCut>,
    /// For what more is kept than was requested: a reference, or one of `needed`.
    pub kept_for: Option<String>,
}

/// Why a history cannot be cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutError {
    /// The repository is a shallow clone.
    #[error(
        "the repository is a shallow clone, or another program moved the boundary of its history, so the removed commits are not known: \
         fetch the whole history with `git fetch --unshallow REMOTE`, or clone again"
    )]
    Shallow,
    /// Too many commits would lose their parents.
    #[error(
        "more than {MAX_BOUNDARY} merges after revision {revision} have parents before it, each of which would keep its tree: keep more"
    )]
    Wide {
        /// The oldest revision that was to be kept.
        revision: i64,
    },
    /// The history cannot be read.
    #[error(transparent)]
    History(#[from] HistoryError),
}

impl From<GraphError> for CutError {
    fn from(error: GraphError) -> Self {
        Self::History(error.into())
    }
}

/// Limit on commits that lose their parents, each of which keeps a tree.
const MAX_BOUNDARY: usize = 1000;
/// Limit on commits that a merge reads in search of the last edits (`gitcd-sync`, `plan/edits.rs`).
const READ_BY_MERGE: usize = 4096;
/// Limit on references of which each pair is compared. Of more, each is compared with this branch.
const MAX_PAIRS: usize = 40;

/// A commit that must stay, and for what.
type Needed = BTreeMap<Oid, String>;

impl History {
    /// Finds the latest cut that keeps a part of the history. All references keep what merges of them read. The commits in `needed`,
    /// each with what needs it, stay as well.
    ///
    /// Reads each flush once, and each commit a few times. Memory: some 100 bytes for each commit.
    ///
    /// # Errors
    /// [`CutError`].
    pub fn cut(&self, keep: Keep, needed: &[(String, Oid)]) -> Result<Cuttable, CutError> {
        let mut graph = Graph::lenient();
        if self.is_shallow && self.boundary.cut().is_none() {
            return Err(CutError::Shallow);
        }
        let (line, wanted) = self.flushes(keep)?;
        let tips = self.tips()?;
        let mut stays = self.needed_by_merges(&mut graph, &tips)?;
        stays.extend(needed.iter().map(|(what, oid)| (*oid, what.clone())));
        let all = tips.iter().map(|(_, oid)| *oid).chain(line.iter().flat_map(|flush| [flush.data, flush.metadata]));
        let lineage = Lineage::read(&mut graph, &self.repository, all)?;
        let (wanted, mut kept_for) = self.seen_by_others(&lineage, &line, wanted, &tips)?;
        let (mut low, mut high) = (wanted, line.len());
        // A commit that is before one flush is before all newer ones.
        while low < high {
            let middle = if low == wanted { low } else { low.midpoint(high) };
            match left_behind(&lineage, &line[middle], &stays) {
                Some(what) => (low, kept_for) = (middle + 1, Some(what)),
                None => high = middle,
            }
        }
        // Even the first flush may be too late: history that was there before gitcd is cut as well.
        let Some(flush) = line.get(low) else { return Ok(Cuttable { cut: None, kept_for }) };
        let tips: Vec<Oid> = tips.iter().map(|(_, oid)| *oid).collect();
        let plan = graph.plan_cut(&self.repository, &[flush.data, flush.metadata], &tips)?;
        if plan.removed.is_empty() {
            return Ok(Cuttable { cut: None, kept_for });
        }
        // What is only there until it is pruned does not count.
        if plan.boundary.len() - plan.former.len() > MAX_BOUNDARY {
            return Err(CutError::Wide { revision: flush.revision });
        }
        let Flush { revision, time, data, metadata, .. } = *flush;
        Ok(Cuttable { cut: Some(PlannedCut { revision, time, data, metadata, plan }), kept_for })
    }

    /// Returns all flushes, newest first, and the index of the newest one that keeps what is requested.
    fn flushes(&self, keep: Keep) -> Result<(Vec<Flush>, usize), HistoryError> {
        let odb = self.odb()?;
        let keep = match keep {
            Keep::Since(when) => Keep::Since(self.with_revision(Some(when))?.unwrap_or(when)),
            keep @ Keep::Commits(_) => keep,
        };
        // The digits of a commit may be those of a number.
        if let Keep::Since(When::Revision(asked)) = keep
            && asked > self.tip.revision
        {
            return Err(HistoryError::TooLate { asked, last: self.tip.revision });
        }
        let (mut line, mut wanted, mut commits) = (vec![self.tip.clone()], None, 0);
        loop {
            let newest = &line[line.len() - 1];
            let is_enough = match keep {
                Keep::Since(When::Commit(_) | When::Now) => true,
                Keep::Since(When::Time(time)) => newest.time <= time,
                Keep::Since(When::Revision(revision)) => newest.revision <= revision,
                Keep::Commits(wanted) => commits >= wanted,
            };
            if is_enough && wanted.is_none() {
                wanted = Some(line.len() - 1);
            }
            let Some(older) = self.before(&odb, newest)? else { break };
            if matches!(keep, Keep::Commits(_)) && wanted.is_none() {
                commits += self.line(&odb, Some(&older), Some(newest), newest.data, usize::MAX)?.len();
            }
            line.push(older);
        }
        let wanted = wanted.unwrap_or(line.len() - 1);
        Ok((line, wanted))
    }

    /// Returns the index of the newest flush, at or after `wanted`, that every branch has seen which merges this one. Such a branch
    /// may be about to send a merge with any later commit of this one, so all of these must stay.
    fn seen_by_others(
        &self,
        lineage: &Lineage,
        line: &[Flush],
        wanted: usize,
        tips: &[(String, Oid)],
    ) -> Result<(usize, Option<String>), CutError> {
        let (mut index, mut kept_for) = (wanted, None);
        let last = line.len() - 1;
        // A branch that has only the first flush was forked from this one, or this one from it, and does not merge it.
        let is_whole = line[last].previous.is_none();
        for (reference, oid) in tips.iter().filter(|(_, oid)| *oid != self.head) {
            if self.is_metadata(*oid)? {
                continue;
            }
            let has = lineage.ancestors(&[*oid]);
            let seen = line.iter().position(|flush| has.has(flush.data));
            if let Some(seen) = seen.filter(|seen| *seen > index && !(is_whole && *seen == last)) {
                (index, kept_for) = (seen, Some(reference.clone()));
            }
        }
        Ok((index, kept_for))
    }

    /// Returns the commits of all references, and for each what a merge with the others reads.
    fn needed_by_merges(&self, graph: &mut Graph, tips: &[(String, Oid)]) -> Result<Needed, CutError> {
        let own = [self.head, self.tip.metadata];
        let others: BTreeMap<Oid, &String> =
            tips.iter().filter(|(_, oid)| !own.contains(oid)).map(|(reference, oid)| (*oid, reference)).collect();
        let mut stays: Needed = others.iter().map(|(oid, reference)| (*oid, (*reference).clone())).collect();
        let (mut data, mut metadata) = (vec![self.head], vec![self.tip.metadata]);
        for oid in others.keys() {
            if self.is_metadata(*oid)? { metadata.push(*oid) } else { data.push(*oid) }
        }
        let firsts = if data.len() > MAX_PAIRS { 1 } else { data.len() };
        for (at, one) in data.iter().enumerate().take(firsts) {
            for other in &data[at + 1..] {
                for oid in graph.read_by_merge(&self.repository, *one, *other, READ_BY_MERGE)? {
                    stays.entry(oid).or_insert_with(|| others[other].clone());
                }
            }
        }
        // Metadata is compared, and never merged.
        for other in &metadata[1..] {
            for oid in graph.read_by_merge(&self.repository, metadata[0], *other, 0)? {
                stays.entry(oid).or_insert_with(|| others[other].clone());
            }
        }
        Ok(stays)
    }

    fn is_metadata(&self, oid: Oid) -> Result<bool, HistoryError> {
        let commit = CommitInfo::read(&self.odb()?, oid)?;
        Ok(commit.subject().starts_with("metadata at revision "))
    }

    /// Returns the commits of all references, in order of their names.
    fn tips(&self) -> Result<Vec<(String, Oid)>, HistoryError> {
        let failed = |error: git2::Error| HistoryError::object(self.tip.metadata, error.message());
        let mut tips = Vec::new();
        for reference in self.repository.references().map_err(failed)? {
            let reference = reference.map_err(failed)?;
            // A reference to another one is found under that name; a tag of a tree keeps it as it is.
            if reference.symbolic_target().ok().flatten().is_none()
                && let Ok(commit) = reference.peel_to_commit()
            {
                tips.push((String::from_utf8_lossy(reference.name_bytes()).into_owned(), commit.id()));
            }
        }
        // A person may have checked out a commit that no branch leads to.
        if self.repository.head_detached().unwrap_or(false)
            && let Ok(commit) = self.repository.head().and_then(|head| head.peel_to_commit())
        {
            tips.push(("HEAD".to_owned(), commit.id()));
        }
        // They may have moved since the branch was opened.
        tips.push((self.config.data_reference.clone(), self.head));
        tips.push((self.config.metadata_reference.clone(), self.tip.metadata));
        tips.sort();
        tips.dedup();
        Ok(tips)
    }
}

/// Returns for what a cut at a flush would remove too much.
fn left_behind(lineage: &Lineage, flush: &Flush, stays: &Needed) -> Option<String> {
    let oldest = [flush.data, flush.metadata];
    let before = lineage.ancestors(&oldest);
    let lost = stays.iter().find(|(oid, _)| before.has(**oid) && !oldest.contains(oid));
    lost.map(|(_, what)| what.clone())
}

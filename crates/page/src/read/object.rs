//! An object: its versions, and who set which field.

use gitcd_history::CommitInfo;
use gitcd_history::blame::{Blame, BlameError, Options};
use gitcd_history::fields::Field;
use gitcd_history::moment::Moment;
use gitcd_history::versions::{ChangeKind, Version};
use gitcd_history::when::When;
use gitcd_history::who::Who;
use gitcd_history::{HistoryError, ResolvedMerge};
use gitcd_merge::Conflict;
use gitcd_merge::secrecy::Exposure;
use gitcd_repo::actor;

use super::{Branch, DEFAULT_COMMITTER, differences};
use crate::keys::Key;
use crate::problem::Problem;

/// Versions of a page, and of one with whole values.
const PAGE: [usize; 2] = [20, 5];
/// Versions that can be reached page by page.
const REACHED: usize = 5000;

/// An object that exists or existed.
pub(crate) struct Object {
    pub(crate) key: Key,
    pub(crate) head: String,
    pub(crate) versions: Vec<ObjectVersion>,
    /// How many versions precede those of this page.
    pub(crate) skipped: usize,
    pub(crate) has_more: bool,
    /// Its fields now, or before its deletion; only on the first page.
    pub(crate) blame: Option<Blame>,
    pub(crate) is_deleted: bool,
}

/// A version of an object, or a merge that had a conflict about it and left it unchanged.
pub(crate) struct ObjectVersion {
    pub(crate) commit: CommitInfo,
    pub(crate) what: &'static str,
    pub(crate) revision: Option<i64>,
    pub(crate) by: String,
    pub(crate) fields: Vec<Field>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl Branch {
    /// Reads an object. Walks the flushes back to its versions on this page.
    pub(crate) fn object(&self, key: Key, skipped: usize, is_whole: bool) -> Result<Object, Problem> {
        if skipped > REACHED {
            return Err(Problem::Unusable(format!(
                "pages end after {REACHED} versions; use `trishanku log --since` for older ones"
            )));
        }
        let page = PAGE[usize::from(is_whole)];
        let whole = &key.whole;
        let mut versions = self.history.versions(whole, skipped + page + 1, None)?;
        let newest = versions.first().cloned();
        let has_more = versions.len() > skipped + page;
        versions.truncate(skipped + page);
        versions.drain(..skipped.min(versions.len()));
        let oldest = versions.last().and_then(|version| version.revision).filter(|_| has_more);
        let decisions = match skipped {
            0 => self.history.decisions(whole, page, oldest.map(When::Revision))?,
            _ => Vec::new(),
        };
        if newest.is_none() && decisions.is_empty() {
            return Err(Problem::Missing(format!(
                "there is and was no object {:?} on this branch; search for a part of its name",
                key.text
            )));
        }
        let is_deleted = newest.as_ref().is_some_and(|newest| newest.what == ChangeKind::Delete);
        let blame = if skipped == 0 { self.fields(whole, &versions, is_deleted)? } else { None };
        let versions = self.entries(whole, versions, decisions, newest.as_ref())?;
        Ok(Object { key, head: self.head.clone(), versions, skipped, has_more, blame, is_deleted })
    }

    /// Returns who set each field of the object as it is now, or as it was before its deletion.
    fn fields(&self, key: &[u8], versions: &[Version], is_deleted: bool) -> Result<Option<Blame>, Problem> {
        let moment = if is_deleted { self.before_deletion(versions)? } else { Some(self.tip.clone()) };
        let Some(moment) = moment else { return Ok(None) };
        let secret_kinds = self.settings.secret_kinds.clone();
        match self.history.blame(&moment, key, &Options { secret_kinds, ..Options::default() }) {
            Ok(blame) => Ok(Some(blame)),
            // An external commit created or deleted it, and no store has merged that yet.
            Err(BlameError::NoKey { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the last moment before a deletion at which the object existed, as far as revisions are known.
    fn before_deletion(&self, versions: &[Version]) -> Result<Option<Moment>, Problem> {
        let revision = |at: usize| versions.get(at).and_then(|version| version.revision);
        let Some(last) = revision(0).map(|deleted| deleted - 1).or_else(|| revision(1)) else { return Ok(None) };
        match self.history.at(When::Revision(last)) {
            Ok(moment) => Ok(Some(moment)),
            Err(HistoryError::TooEarly { .. } | HistoryError::BeforeInit { .. } | HistoryError::Cut { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Merges versions and decisions into one list, newest first.
    fn entries(
        &self,
        key: &[u8],
        versions: Vec<Version>,
        decisions: Vec<ResolvedMerge>,
        newest: Option<&Version>,
    ) -> Result<Vec<ObjectVersion>, Problem> {
        // Versions and conflicts are as secret as the most secret of the versions.
        let mut changes = Vec::new();
        for version in newest.into_iter().chain(&versions) {
            changes.push(self.history.change(key, version)?);
        }
        let values = |change: &[Option<Vec<u8>>; 2]| self.exposure(key, change.each_ref().map(Option::as_deref));
        let exposure = changes.iter().map(values).fold(self.exposure(key, [None, None]), Exposure::max);
        let mut decisions = decisions.into_iter().map(|decision| hidden(decision, exposure)).peekable();
        let mut entries = Vec::new();
        for (version, change) in versions.into_iter().zip(changes.split_off(usize::from(newest.is_some()))) {
            let is_before = |decision: &ResolvedMerge| match version.revision {
                Some(revision) => revision <= decision.revision,
                None => version.commit.time <= decision.commit.time,
            };
            let mut conflicts = Vec::new();
            while let Some(decision) = decisions.next_if(is_before) {
                if decision.commit.oid == version.commit.oid {
                    conflicts = decision.conflicts;
                    break;
                }
                entries.push(alone(decision));
            }
            let values = change.each_ref().map(Option::as_deref);
            let name = actor::key_name(self.history.keys(), key);
            let by = || Who::of(&version.commit, Some(name), values).text(DEFAULT_COMMITTER);
            entries.push(ObjectVersion {
                what: version.what.word(),
                revision: version.revision,
                // Who wrote what the history begins with is not known.
                by: if version.what == ChangeKind::Boundary { String::new() } else { by() },
                fields: differences(values, exposure),
                commit: version.commit,
                conflicts,
            });
        }
        entries.extend(decisions.map(alone));
        Ok(entries)
    }
}

fn hidden(mut decision: ResolvedMerge, exposure: Exposure) -> ResolvedMerge {
    for conflict in &mut decision.conflicts {
        conflict.kept = exposure.value(&conflict.field, conflict.kept.take());
        conflict.lost = exposure.value(&conflict.field, conflict.lost.take());
        conflict.field = exposure.path(&conflict.field).to_owned();
    }
    decision
}

fn alone(decision: ResolvedMerge) -> ObjectVersion {
    // Who made the merged commit is not shown: it may have changes of other objects, too.
    let ResolvedMerge { commit, conflicts, .. } = decision;
    ObjectVersion { commit, what: "conflict", revision: None, by: String::new(), fields: Vec::new(), conflicts }
}

//! The moment of a branch from which a fork starts: its data, and the revisions of all keys.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use git2::Odb;
use gitcd_repo::branch::{ForkPoint, PastWrite};
use gitcd_repo::changes;
use gitcd_repo::history_link::HistoryLink;
use gitcd_repo::lookup::Lookup;

use super::line::Step;
use super::moment::Moment;
use super::{CommitInfo, Flush, History, HistoryError, known};

impl History {
    /// Returns what a fork needs of a moment.
    ///
    /// The metadata of keys is recorded once for each flush. For a key that was written between the last flush and the moment,
    /// and not again until the next flush, the next flush has its revisions. Otherwise they are derived from the commits: a key
    /// has the last revision of its last commit, and its version counts the commits.
    ///
    /// Reads each commit and each changed directory since the last flush before the moment.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn fork_point(&self, moment: &Moment) -> Result<ForkPoint, HistoryError> {
        let odb = self.odb()?;
        let older = moment.older();
        let mut point = ForkPoint {
            metadata: older.metadata,
            data: moment.commit.oid,
            revision: moment.revision,
            writes: Vec::new(),
            known: HashMap::new(),
            links: Vec::new(),
        };
        let Some(newer) = moment.newer().filter(|_| moment.commit.oid != older.data) else { return Ok(point) };
        point.links.clone_from(&newer.joins);
        let mut steps = self.line(&odb, Some(older), Some(newer), newer.data, usize::MAX)?;
        steps.reverse();
        let end = steps.iter().position(|step| step.commit.oid == moment.commit.oid);
        let end = end.ok_or_else(|| HistoryError::object(moment.commit.oid, "it is not on the line of this branch"))?;
        if !steps[end].is_own {
            // The commits of another store up to the moment have that store's revisions.
            point.links.push(HistoryLink::FastForward { ours: older.data, theirs: moment.commit.oid });
        }
        let next = steps[end + 1..].iter().find_map(Step::revisions).map_or(newer.revision + 1, |own| own.first);
        point.writes = self.writes(&odb, older, &steps[..=end], next)?;
        // A merge after the moment has no revision in its message, and comes before the next commit that has one.
        let next = steps[end].revisions().map_or(next, |own| own.last + 1);
        let later = CommitInfo::read(&odb, newer.data)?.tree;
        let written: BTreeSet<&Bytes> = point.writes.iter().map(|write| &write.key).collect();
        for key in written {
            let found = known(&mut Lookup::new(key), &odb, newer)?;
            let relative = self.config.keys.relative(key);
            let blob = |tree| changes::find(&self.repository, tree, relative);
            let Some(found) = found.filter(|found| found.record.mod_revision < next) else { continue };
            if blob(later)? == blob(moment.commit.tree)? {
                point.known.insert(key.clone(), (found.record, found.form));
            }
        }
        Ok(point)
    }

    /// Returns the writes of some commits, the first of which follows `older`. `next` is the first revision after them.
    fn writes(&self, odb: &Odb<'_>, older: &Flush, steps: &[Step], next: i64) -> Result<Vec<PastWrite>, HistoryError> {
        let (mut writes, mut last) = (Vec::new(), older.revision);
        let mut tree = CommitInfo::read(odb, older.data)?.tree;
        for (at, step) in steps.iter().enumerate() {
            let limit = || steps[at..].iter().find_map(Step::revisions).map_or(next, |own| own.first);
            // The writes of a merge or of a person have the revisions in between.
            let revision = step.revisions().map_or_else(|| (last + 1).min(limit() - 1), |own| own.last);
            let changes = changes::between(&self.repository, Some(tree), Some(step.commit.tree))?;
            for (relative, change) in changes.keys {
                let key = self.config.keys.absolute(&relative).into();
                writes.push(PastWrite { key, revision, exists: change.to.is_some() });
            }
            (tree, last) = (step.commit.tree, last.max(revision));
        }
        Ok(writes)
    }
}

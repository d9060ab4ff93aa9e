//! Keys that a merge leaves out or rejects, and those that an earlier merge left out and that are accepted now.

use git2::Oid;
use gitcd_core::keyspace::Placement;
use gitcd_core::path;
use gitcd_core::scope::Scope;
use gitcd_repo::changes::{self, Changes};
use gitcd_repo::graph::MergeBases;

use super::{PlanError, Planner, Rejected};

/// Returns whether merges between two commits may have left out keys in `scope`.
pub(super) fn may_have_left_out(scope: &Scope, meeting: &MergeBases) -> bool {
    let policy = scope.policy();
    meeting.scopes.iter().any(|left_out| left_out.policy() != policy || left_out.has_exceptions())
}

impl Planner<'_, '_> {
    /// Adds the keys that are accepted now and that an earlier merge left out: they may equal the merge bases although ours does
    /// not have them.
    pub(super) fn left_out_before(&self, our_tree: Oid, theirs: &mut Changes) -> Result<(), PlanError> {
        if !may_have_left_out(self.rules.scope, &self.meeting) {
            return Ok(());
        }
        for (relative, change) in changes::between(self.repository, Some(our_tree), Some(self.their_commit.tree))?.keys
        {
            let key = self.rules.keys.absolute(&relative);
            if self.rules.scope.covers(&key) && self.meeting.scopes.iter().any(|scope| !scope.covers(&key)) {
                theirs.keys.entry(relative).or_insert(changes::Change { from: change.to, to: change.to });
            }
        }
        Ok(())
    }

    /// Returns whether a key is merged.
    pub(super) fn is_taken(&self, relative: &[u8]) -> bool {
        let key = self.rules.keys.absolute(relative);
        self.rules.keys.placement(&key) == Placement::Data && self.rules.scope.covers(&key)
    }

    /// Records that this merge leaves a key out.
    pub(super) fn leave_out(&mut self, key: &[u8]) {
        self.left_out.leave_out(key);
        self.is_partial = true;
    }

    /// Rejects the file of a key.
    pub(super) fn reject_file(&mut self, relative: &[u8], key: &[u8], reason: String) {
        let path: Vec<_> = path::encode(relative).map(|name| name.to_vec()).collect();
        self.reject(&path.join(&b'/'), Some(key), reason);
    }

    /// Rejects a path, and leaves out its key if it has one.
    pub(super) fn reject(&mut self, path: &[u8], key: Option<&[u8]>, reason: String) {
        self.rejected.push(Rejected { path: String::from_utf8_lossy(path).into_owned(), reason });
        // An unmappable path is in no store, so no key is left out.
        self.is_partial = true;
        if let Some(key) = key {
            self.left_out.leave_out(key);
        }
    }
}

//! Keys that a merge leaves out or rejects, and those that an earlier merge left out and that are accepted now.

use git2::Oid;
use gitcd_core::keyspace::Placement;
use gitcd_core::path;
use gitcd_core::scope::Scope;
use gitcd_merge::admit;
use gitcd_repo::changes::{self, Changes};
use gitcd_repo::graph::MergeBases;

use super::origins::Brought;
use super::{PlanError, Planner, Provenance, Rejected};

/// Why a pushed file of an ephemeral key is rejected.
const NEVER_COMMITTED: &str =
    "keys of this folder are never committed here (--ephemeral-prefixes), so the file has no effect; remove it";
/// Why a change of kube-apiserver's own records is rejected.
const OF_API_SERVER: &str = "kube-apiserver keeps its own records in this folder, and no one else may change them; restore the file, or remove it if it is new";

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

    /// Leaves out a key that belongs to one server. A pushed file of such a key is rejected: its author would not learn otherwise
    /// that it has no effect.
    pub(super) fn of_one_server(&mut self, relative: &[u8], key: &[u8], theirs: Option<Oid>) {
        if theirs.is_some() && self.rules.provenance == Provenance::External {
            return self.reject_file(relative, key, NEVER_COMMITTED.to_owned());
        }
        self.leave_out(key);
    }

    /// Rejects an external change of one of kube-apiserver's own records. Returns whether the key needs no further plan: it was
    /// rejected, or is planned again once its origin is found.
    pub(super) fn of_api_server(&mut self, relative: &[u8], key: &[u8], theirs: Option<Oid>) -> bool {
        if !self.is_kubernetes || !admit::is_of_api_server(relative) {
            return false;
        }
        let is_external = match (theirs, self.origins.get(relative)) {
            (Some(blob), None) => {
                self.origins.ask(relative, blob);
                return true;
            }
            (Some(_), Some(brought)) => matches!(brought, Brought::By(_) | Brought::Removed),
            // Nothing shows which commit deleted a file.
            (None, _) => self.rules.provenance == Provenance::External,
        };
        if is_external {
            self.reject_file(relative, key, OF_API_SERVER.to_owned());
        }
        is_external
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

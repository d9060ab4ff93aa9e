//! A commit: the fields that it changed, and the conflicts that it resolved.

use std::collections::BTreeSet;

use gitcd_history::commits::BranchCommit;
use gitcd_history::conflicts::ConflictLine;
use gitcd_history::fields::Field;
use gitcd_merge::Conflict;
use gitcd_merge::secrecy::HIDDEN;

use super::{Branch, by, differences};
use crate::keys::{self, Key};
use crate::problem::Problem;
use crate::rights::ObjectRef;

/// Keys of a page, and of one with whole values.
const PAGE: [usize; 2] = [50, 5];
/// Conflicts of a page.
const CONFLICTS: usize = 100;

/// A commit, and some of the keys that it changed.
pub(crate) struct Commit {
    pub(crate) step: BranchCommit,
    pub(crate) by: String,
    /// The message without conflicts.
    pub(crate) message: String,
    pub(crate) keys: Vec<ChangedKey>,
    pub(crate) conflicts: Vec<(Key, Conflict)>,
    pub(crate) has_more_conflicts: bool,
    /// All changed keys.
    pub(crate) count: usize,
    /// How many keys precede those of this page.
    pub(crate) skipped: usize,
    /// Whether the history begins with it, so that its changes are not known.
    pub(crate) is_oldest: bool,
}

/// A key that a commit changed.
pub(crate) struct ChangedKey {
    pub(crate) key: Key,
    pub(crate) what: &'static str,
    pub(crate) fields: Vec<Field>,
}

impl Commit {
    /// Returns the objects whose rights decide what is shown.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectRef> {
        self.all_keys().filter_map(|key| key.object.clone()).collect()
    }

    /// Returns the keys of this page: those that the commit changed, and those of its conflicts.
    pub(crate) fn all_keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().map(|changed| &changed.key).chain(self.conflicts.iter().map(|(key, _)| key))
    }

    /// Returns whether this page has all changed keys.
    pub(crate) fn is_complete(&self) -> bool {
        self.keys.len() == self.count && !self.has_more_conflicts
    }
}

impl Branch {
    /// Reads a commit by its ID, or the start of it.
    pub(crate) fn commit(&self, id: &str, skipped: usize, is_whole: bool) -> Result<Commit, Problem> {
        let step = self.history.find_commit(id)?;
        let is_oldest = self.history.is_oldest(&step)?;
        let changes = self.history.changes_of(&step)?.keys;
        let count = changes.len();
        let mut keys = Vec::new();
        for (relative, change) in changes.into_iter().skip(skipped).take(PAGE[usize::from(is_whole)]) {
            let key = self.key_of(&relative);
            let what = match (change.from, change.to) {
                (None, _) => "create",
                (_, None) => "delete",
                _ => "update",
            };
            let [before, after] = self.values(change)?;
            let values = [before.as_deref(), after.as_deref()];
            let fields = differences(values, self.exposure(&key.whole, values));
            keys.push(ChangedKey { key, what, fields });
        }
        let mut recorded = ConflictLine::all(&step.commit.message);
        let mut found = Vec::new();
        for recorded in recorded.by_ref().take(CONFLICTS) {
            found.push(self.shown(&step, recorded)?);
        }
        let has_more_conflicts = recorded.next().is_some();
        drop(recorded);
        let (by, message) = (by(&step.commit), ConflictLine::without(&step.commit.message));
        Ok(Commit { step, by, message, keys, conflicts: found, has_more_conflicts, count, skipped, is_oldest })
    }

    /// Finds the key of a conflict, which one of the merged commits or the merge has, and hides what must not be shown. If that is
    /// not exactly one key, nothing but the start of the key is shown, to users with the right to everything.
    fn shown(&self, step: &BranchCommit, recorded: ConflictLine<'_>) -> Result<(Key, Conflict), Problem> {
        let parents =
            step.commit.parents.iter().filter_map(|parent| self.history.repository().find_commit(*parent).ok());
        let trees: Vec<_> = parents.map(|parent| parent.tree_id()).chain([step.commit.tree]).collect();
        let mut found = Vec::new();
        for (key, conflict) in recorded.readings() {
            let (mut exposure, mut is_there) = (self.exposure(&key, [None, None]), false);
            for tree in &trees {
                // The object may be secret on one side only.
                let value = self.value_in(*tree, &key)?;
                is_there |= value.is_some();
                exposure = exposure.max(self.exposure(&key, [value.as_deref(), None]));
            }
            if is_there {
                found.push((key, conflict, exposure));
            }
        }
        let (Some((key, conflict, exposure)), true) = (found.pop(), found.is_empty()) else {
            // Not the field: its name may be a secret, too.
            let name = recorded.start().as_bytes();
            let key = Key { whole: name.to_vec(), text: keys::text(name), object: None };
            let hidden = || Some(HIDDEN.to_owned());
            return Ok((key, Conflict { field: String::new(), kept: hidden(), lost: hidden() }));
        };
        let Conflict { field, kept, lost } = conflict;
        let (kept, lost) = (exposure.value(&field, kept), exposure.value(&field, lost));
        let field = exposure.path(&field).to_owned();
        Ok((self.key(key), Conflict { field, kept, lost }))
    }
}

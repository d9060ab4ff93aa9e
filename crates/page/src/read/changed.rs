//! The keys that a commit changed.

use std::collections::BTreeSet;

use super::Branch;
use crate::keys::{self, Key};
use crate::problem::Problem;
use crate::rights::{Granted, ObjectRef};

/// The keys of a commit that an undo is about.
pub(crate) struct Changed {
    /// The whole ID of the commit.
    pub(crate) commit: String,
    pub(crate) keys: Vec<Key>,
}

impl Changed {
    /// Returns the objects whose rights decide.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectRef> {
        self.keys.iter().filter_map(|key| key.object.clone()).collect()
    }

    /// Returns the number of keys that may not be read.
    pub(crate) fn denied(&self, granted: &Granted) -> usize {
        self.keys.iter().filter(|key| !granted.allows(key.object.as_ref())).count()
    }
}

impl Branch {
    /// Returns the keys that a commit changed, or the one of them with this name, below the prefix of kube-apiserver.
    pub(crate) fn changed(&self, id: &str, name: Option<&str>) -> Result<Changed, Problem> {
        let step = self.history.find_commit(id)?;
        let commit = step.commit.oid.to_string();
        if self.history.is_oldest(&step)? {
            return Err(Problem::Missing(format!(
                "the history here begins with commit {}, so what it changed is not known",
                &commit[..10]
            )));
        }
        let changes = self.history.changes_of(&step)?.keys;
        let mut keys: Vec<Key> = changes.keys().map(|relative| self.key_of(relative)).collect();
        if let Some(name) = name {
            let whole = [keys::PREFIX, name.as_bytes()].concat();
            keys.retain(|key| key.whole == whole);
            if keys.is_empty() {
                return Err(Problem::Missing(format!("commit {} does not change {name:?}", &commit[..10])));
            }
        }
        Ok(Changed { commit, keys })
    }
}

//! What a branch that another process serves has not committed to Git yet.
//!
//! Git does not show it: the last revisions of a branch may be writes of ephemeral keys, which are never committed. The journal does.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use gitcd_core::keyspace::{KeySpace, Placement};
use gitcd_core::revision::Revision;
use gitcd_journal::tail;
use gitcd_mvcc::snapshot::hex;
use gitcd_repo::git_dir;

/// The local state of a branch that another process serves. It is only read, without a lock.
#[derive(Debug)]
pub struct LocalState {
    journal: PathBuf,
    /// `None` if they are not recorded, or not readable: then all keys count as committed ones.
    keys: Option<KeySpace>,
}

/// Writes of a branch after a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncommitted {
    /// The revision of the last write; `None` if there is none.
    pub last: Option<Revision>,
    /// The keys that are committed, each with whether it exists after the last write of it.
    pub keys: BTreeMap<Bytes, bool>,
}

impl LocalState {
    /// Finds the local state of the store with this incarnation, which its metadata commits record. `None` if the repository does not
    /// have it, as a clone.
    ///
    /// # Errors
    /// The local state cannot be read: only its owner may.
    pub fn find(repository: &Path, incarnation: &str) -> io::Result<Option<Self>> {
        let folders = match std::fs::read_dir(git_dir(repository).join("gitcd")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            folders => folders?,
        };
        for folder in folders {
            let folder = folder?.path();
            if !folder.is_dir() {
                continue;
            }
            let journal = folder.join("journal");
            if tail::incarnation(&journal)?.is_some_and(|found| hex(&found) == incarnation) {
                let keys = std::fs::read_to_string(folder.join("keys")).ok();
                return Ok(Some(Self { journal, keys: keys.and_then(|keys| keys.parse().ok()) }));
            }
        }
        Ok(None)
    }

    /// Returns the writes after a revision that are in the journal, up to another one if there is one. Reads the segments that have
    /// them.
    ///
    /// A segment is trimmed only after its writes were committed. So if Git has `after` as its last revision before this call and
    /// also after it, nothing is missing.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn writes_after(&self, after: Revision, until: Option<Revision>) -> io::Result<Uncommitted> {
        let mut found = Uncommitted::default();
        tail::writes_after(&self.journal, after, |write| {
            if until.is_some_and(|until| write.revision > until) {
                return;
            }
            found.last = found.last.max(Some(write.revision));
            for change in write.changes {
                let placement = self.keys.as_ref().map(|keys| keys.placement(&change.key));
                if placement != Some(Placement::Ephemeral) {
                    found.keys.insert(change.key, change.put.is_some());
                }
            }
        })?;
        Ok(found)
    }
}

//! Objects of one repository in a pack of another.
//!
//! Like a flush, a transfer is one pack: it becomes visible, durably, with everything in it. A directory or value that changes from
//! commit to commit is a delta against its version before, as in a flush.

use std::collections::{HashMap, HashSet};

use git2::{ObjectType, Odb, OdbLookupFlags, Oid, Repository};

use super::changes::{self, Entry as TreeEntry};
use super::delta;
use super::pack::{self, Kind, Placed};
use super::pack_file::WriteError;

/// Objects could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// An object is missing or damaged.
    #[error("cannot read object {oid}: {said}")]
    Read {
        /// The object.
        oid: Oid,
        /// What is wrong.
        said: String,
    },
    /// The pack could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A pack for another repository.
#[derive(Debug, Default)]
pub struct Pack {
    writer: pack::Writer,
    seen: HashSet<Oid>,
    /// The last version of a directory or file in this pack, by its path.
    last: HashMap<Vec<u8>, Version>,
    path: Vec<u8>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Version {
    placed: Placed,
    content: Vec<u8>,
}

/// Larger directories and values are not kept for deltas.
const KEPT: usize = 8 << 20;

impl Pack {
    /// Adds a tree and what is in it, as far as it differs from the tree `before`, which the other repository has or gets, and is not
    /// there.
    ///
    /// # Errors
    /// [`TransferError::Read`].
    pub fn tree(
        &mut self,
        odb: &Odb<'_>,
        there: &Odb<'_>,
        before: Option<Oid>,
        tree: Oid,
    ) -> Result<(), TransferError> {
        if before == Some(tree) || self.seen.contains(&tree) || has(there, tree) {
            return Ok(());
        }
        let (content, entries) = {
            let object = read(odb, tree, ObjectType::Tree)?;
            let old = before.map(|before| read(odb, before, ObjectType::Tree)).transpose().unwrap_or(None);
            let entries = changes::added(tree, object.data(), before.zip(old.as_ref().map(git2::OdbObject::data)))
                .map_err(|error| TransferError::Read { oid: error.oid, said: error.problem })?;
            (object.data().to_vec(), entries)
        };
        let len = self.path.len();
        for TreeEntry { is_directory, name, oid, before } in entries {
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            if is_directory {
                self.tree(odb, there, before, oid)?;
            } else if !self.seen.contains(&oid) && !has(there, oid) {
                let blob = read(odb, oid, ObjectType::Blob)?.data().to_vec();
                self.add(Kind::Blob, oid, blob);
            }
            self.path.truncate(len);
        }
        self.add(Kind::Tree, tree, content);
        Ok(())
    }

    /// Adds a commit.
    ///
    /// # Errors
    /// [`TransferError::Read`].
    pub fn commit(&mut self, odb: &Odb<'_>, oid: Oid) -> Result<(), TransferError> {
        let object = read(odb, oid, ObjectType::Commit)?;
        self.writer.whole(Kind::Commit, oid, object.data());
        Ok(())
    }

    fn add(&mut self, kind: Kind, oid: Oid, content: Vec<u8>) {
        self.seen.insert(oid);
        let mut placed = None;
        if let Some(last) = self.last.get(&self.path).filter(|last| !last.placed.ends_chain()) {
            self.scratch.clear();
            delta::between(&last.content, &content, &mut self.scratch);
            if self.scratch.len() < content.len() / 2 {
                placed = self.writer.delta(oid, &self.scratch, last.placed);
            }
        }
        let placed = placed.unwrap_or_else(|| self.writer.whole(kind, oid, &content));
        if content.len() <= KEPT {
            self.last.insert(self.path.clone(), Version { placed, content });
        }
    }

    /// Puts the pack into a repository, durably; returns its bytes.
    ///
    /// # Errors
    /// [`TransferError::Write`], with nothing visible.
    pub fn finish(mut self, repository: &Repository) -> Result<u64, TransferError> {
        let finished = self.writer.finish(&repository.commondir().join("objects/pack"))?;
        Ok(finished.pack_bytes + finished.index_bytes)
    }
}

/// Whether an object is there. Packs that came since the last look are not looked for: a copy too many does no harm.
fn has(odb: &Odb<'_>, oid: Oid) -> bool {
    odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH)
}

fn read<'o>(odb: &'o Odb<'_>, oid: Oid, kind: ObjectType) -> Result<git2::OdbObject<'o>, TransferError> {
    let object = odb.read(oid).map_err(|error| TransferError::Read { oid, said: error.message().to_owned() })?;
    if object.kind() != kind {
        return Err(TransferError::Read { oid, said: format!("it is a {}, not a {kind}", object.kind().str()) });
    }
    Ok(object)
}

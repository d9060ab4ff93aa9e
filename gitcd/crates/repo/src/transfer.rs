//! Copies objects of a repository into a pack for another.
//!
//! Like a flush, a transfer writes one pack, or extends the previous one: it becomes visible, durably, with everything in it. A
//! directory or value that changes from commit to commit is a delta against its previous version, as in a flush.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use git2::{ObjectType, Odb, Oid, Repository, Sort};

use super::changes::{self, Entry as TreeEntry};
use super::delta;
use super::graph::GraphError;
use super::loose::Loose;
use super::object;
use super::pack::{self, Kind, Placed};
use super::pack_file::WriteError;
use super::received::Received;

/// Why objects could not be copied.
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
    /// The history was cut in one of the repositories, and the other one lacks what is before.
    #[error(transparent)]
    Cut(GraphError),
    /// The content exceeds the limit.
    #[error("it is too large to send in one pack")]
    TooLarge,
    /// The pack could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// A pack for another repository.
#[derive(Debug)]
pub struct Pack {
    writer: pack::Writer,
    /// Whether deltas may refer to directories outside the pack, which the other repository has.
    is_thin: bool,
    /// Bytes of content that may still be added, if limited.
    room: Option<usize>,
    seen: HashSet<Oid>,
    /// Directories outside the pack that deltas refer to. If one of them is to be added, it is written whole: as a delta it might
    /// form a cycle.
    bases: HashSet<Oid>,
    /// The last version of a directory or file in this pack, by path.
    last: HashMap<Vec<u8>, Version>,
    /// Memory of `last`, about.
    last_bytes: usize,
    /// Limit of `last_bytes`.
    max_last_bytes: usize,
    path: Vec<u8>,
    depth: usize,
    scratch: Vec<u8>,
    /// Loose objects of a repository that other programs write to, whose files may be truncated.
    loose: Option<Loose>,
    /// Received packs, which need not be read from files.
    recent: Vec<Arc<Received>>,
}

/// An object and where it was found.
enum Found<'o> {
    Stored(git2::OdbObject<'o>),
    Recent(Arc<Received>, Oid),
}

impl Found<'_> {
    fn data(&self) -> &[u8] {
        match self {
            Self::Stored(object) => object.data(),
            Self::Recent(received, oid) => received.get(*oid).expect("the received pack has the object").1,
        }
    }
}

#[derive(Debug)]
struct Version {
    kind: Kind,
    oid: Oid,
    placed: Placed,
    content: Vec<u8>,
}

/// Larger directories and values are not kept as bases of deltas.
const MAX_BASE_BYTES: usize = 8 << 20;
/// Memory of the bases of deltas. If it is exceeded, values are dropped, and then directories: the next version of each of these
/// paths is stored whole.
const MAX_BASES_BYTES: usize = 64 << 20;
/// Memory of a base besides its path and content.
const BASE_OVERHEAD: usize = size_of::<Version>() + size_of::<Vec<u8>>() + 32;
/// Limit of nested directories, as Git has it (`core.maxTreeDepth`). Deeper ones could overflow a thread's stack.
const MAX_DEPTH: usize = 2048;
/// Size up to which a pack is extended.
const OPEN_BELOW: usize = 512 << 10;

impl Default for Pack {
    fn default() -> Self {
        Self {
            writer: pack::Writer::default(),
            is_thin: false,
            room: None,
            seen: HashSet::new(),
            bases: HashSet::new(),
            last: HashMap::new(),
            last_bytes: 0,
            max_last_bytes: MAX_BASES_BYTES,
            path: Vec::new(),
            depth: 0,
            scratch: Vec::new(),
            loose: None,
            recent: Vec::new(),
        }
    }
}

impl Version {
    fn bytes(&self, path: &[u8]) -> usize {
        path.len() + self.content.len() + BASE_OVERHEAD
    }
}

impl Pack {
    /// Creates a thin pack, for a repository that completes it, with at most `bytes` of content.
    pub fn thin(bytes: usize) -> Self {
        Self { is_thin: true, room: Some(bytes), ..Self::default() }
    }

    /// Writes the pack to a file of this repository while it is built, if it becomes large. It must be [published](Self::publish)
    /// there.
    pub fn spill_to(&mut self, repository: &Repository) {
        self.writer.spill.set_folder(pack_folder(repository));
    }

    fn forget_versions(&mut self) {
        (self.last, self.last_bytes) = (HashMap::new(), 0);
    }

    /// Keeps a version as the base of the next one.
    fn keep(&mut self, version: Version) {
        let former = self.last.remove(&self.path);
        self.last_bytes -= former.map_or(0, |former| former.bytes(&self.path));
        let bytes = version.bytes(&self.path);
        if self.last_bytes + bytes > self.max_last_bytes {
            self.last.retain(|_, version| version.kind == Kind::Tree);
            self.last_bytes = self.last.iter().map(|(path, version)| version.bytes(path)).sum();
            // Otherwise, this would soon happen again.
            if self.last_bytes + bytes > self.max_last_bytes / 2 {
                self.forget_versions();
            }
        }
        self.last_bytes += bytes;
        self.last.insert(self.path.clone(), version);
    }

    /// Checks loose objects in this folder before they are read.
    pub fn distrust(&mut self, objects: PathBuf) {
        self.loose = Some(Loose::of(objects));
    }

    fn read<'o>(&self, odb: &'o Odb<'_>, oid: Oid, kind: ObjectType) -> Result<Found<'o>, TransferError> {
        let is_recent = |received: &&Arc<Received>| received.get(oid).is_some_and(|(found, _)| found == kind);
        if let Some(received) = self.recent.iter().find(is_recent) {
            return Ok(Found::Recent(received.clone(), oid));
        }
        self.check(oid)?;
        read(odb, oid, kind).map(Found::Stored)
    }

    /// Checks whether an object may be read.
    ///
    /// # Errors
    /// [`TransferError::Read`].
    pub fn check(&self, oid: Oid) -> Result<(), TransferError> {
        let problem = self.loose.as_ref().and_then(|loose| loose.problem(oid));
        problem.map_or(Ok(()), |said| Err(TransferError::Read { oid, said }))
    }

    /// Adds a tree and its content, except for what the trees `before` have, which the other repository has or gets.
    ///
    /// # Errors
    /// [`TransferError::Read`].
    pub fn tree(&mut self, odb: &Odb<'_>, before: &[Oid], tree: Oid) -> Result<(), TransferError> {
        if before.contains(&tree) || self.seen.contains(&tree) {
            return Ok(());
        }
        self.writer.spill.check()?;
        if self.depth > MAX_DEPTH {
            let said = format!("it lies below more than {MAX_DEPTH} directories");
            return Err(TransferError::Read { oid: tree, said });
        }
        let (content, entries, base) = {
            let object = self.read(odb, tree, ObjectType::Tree)?;
            // From one commit to the next, the previous directory is usually the last one added.
            let kept = self.last.get(&self.path).filter(|last| before.contains(&last.oid));
            let mut distinct = HashSet::new();
            let read: Vec<_> = before
                .iter()
                .filter(|before| distinct.insert(**before))
                .filter(|before| kept.is_none_or(|kept| kept.oid != **before))
                .filter_map(|before| Some((*before, self.read(odb, *before, ObjectType::Tree).ok()?)))
                .collect();
            let old: Vec<_> = kept
                .map(|kept| (kept.oid, &*kept.content))
                .into_iter()
                .chain(read.iter().map(|(oid, object)| (*oid, object.data())))
                .collect();
            let entries = changes::added(tree, object.data(), &old)
                .map_err(|error| TransferError::Read { oid: error.oid, said: error.problem })?;
            // An object in the pack is no base outside of it.
            let mut elsewhere = old.iter().filter(|(oid, _)| self.is_thin && !self.seen.contains(oid));
            let base = elsewhere.next().map(|(oid, content)| (*oid, content.to_vec()));
            (object.data().to_vec(), entries, base)
        };
        let len = self.path.len();
        for TreeEntry { is_directory, name, oid, before } in entries {
            self.path.push(b'/');
            self.path.extend_from_slice(&name);
            if is_directory {
                self.depth += 1;
                self.tree(odb, &before, oid)?;
                self.depth -= 1;
            } else if !self.seen.contains(&oid) {
                if self.room.is_some() {
                    // Check the size before reading: the object may exceed the available memory.
                    self.check(oid)?;
                    let header = odb.read_header(oid);
                    let (bytes, _) =
                        header.map_err(|error| TransferError::Read { oid, said: error.message().to_owned() })?;
                    self.take_room(bytes)?;
                }
                let blob = self.read(odb, oid, ObjectType::Blob)?.data().to_vec();
                self.add(Kind::Blob, oid, blob, None);
            }
            self.path.truncate(len);
        }
        // A directory is usually a small delta.
        self.take_room(if base.is_some() { content.len() / 16 } else { content.len() })?;
        self.add(Kind::Tree, tree, content, base);
        Ok(())
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), TransferError> {
        if let Some(room) = &mut self.room {
            *room = room.checked_sub(bytes).ok_or(TransferError::TooLarge)?;
        }
        Ok(())
    }

    /// Adds a commit.
    ///
    /// # Errors
    /// [`TransferError::Read`].
    pub fn commit(&mut self, odb: &Odb<'_>, oid: Oid) -> Result<(), TransferError> {
        self.writer.spill.check()?;
        let object = self.read(odb, oid, ObjectType::Commit)?;
        self.writer.whole(Kind::Commit, oid, object.data());
        Ok(())
    }

    fn add(&mut self, kind: Kind, oid: Oid, content: Vec<u8>, elsewhere: Option<(Oid, Vec<u8>)>) {
        self.seen.insert(oid);
        let mut placed = None;
        let is_base = self.bases.contains(&oid);
        if let Some(last) = self.last.get(&self.path).filter(|last| !is_base && !last.placed.ends_chain()) {
            self.scratch.clear();
            between(kind, &last.content, &content, &mut self.scratch);
            if self.scratch.len() < content.len() / 2 {
                placed = self.writer.delta(oid, &self.scratch, last.placed);
            }
        } else if let Some((base, before)) = elsewhere.filter(|_| !is_base) {
            self.scratch.clear();
            between(kind, &before, &content, &mut self.scratch);
            if self.scratch.len() < content.len() / 2 {
                placed = Some(self.writer.thin(oid, &self.scratch, base));
                self.bases.insert(base);
            }
        }
        let placed = placed.unwrap_or_else(|| self.writer.whole(kind, oid, &content));
        if content.len() <= MAX_BASE_BYTES {
            self.keep(Version { kind, oid, placed, content });
        }
    }

    /// Writes the pack to a repository, durably; returns the bytes written. A small pack stays open: the next call rewrites it
    /// with what was added since.
    ///
    /// # Errors
    /// [`TransferError::Write`]; nothing new is visible.
    pub fn publish(&mut self, repository: &Repository) -> Result<u64, TransferError> {
        let published = self.writer.publish(&pack_folder(repository), OPEN_BELOW);
        if !self.writer.is_open() {
            self.seen = HashSet::new();
            self.forget_versions();
        }
        let published = published?;
        Ok(published.pack_bytes + published.index_bytes)
    }

    /// Returns the bytes of a pack that is in memory, and starts a new pack.
    ///
    /// # Panics
    /// If the pack was [moved to a file](Self::spill_to).
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = self.writer.seal().bytes.to_vec();
        self.restart();
        bytes
    }

    /// Starts a new pack, after an error or for another repository.
    pub fn restart(&mut self) {
        self.writer.restart();
        self.seen.clear();
        self.bases.clear();
        self.forget_versions();
        self.path.clear();
        self.depth = 0;
    }
}

/// Limits of a pack to build.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Number of commits.
    pub commits: usize,
    /// Approximate bytes of content.
    pub bytes: usize,
}

/// Builds a thin pack in memory, with what `wanted` needs, for a repository that has the histories of the commits `there` that
/// exist here too; `None` if it would exceed `bounds`. Packs in `recent` need not be read from the repository.
///
/// # Errors
/// [`TransferError::Read`].
pub fn thin(
    here: &Repository,
    wanted: &[Oid],
    there: &[Oid],
    recent: Vec<Arc<Received>>,
    bounds: Bounds,
) -> Result<Option<Vec<u8>>, TransferError> {
    let failed = |error: git2::Error| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() };
    let odb = here.odb().map_err(failed)?;
    let mut pack = Pack { recent, ..Pack::thin(bounds.bytes) };
    pack.distrust(here.commondir().join("objects"));
    wanted.iter().chain(there).try_for_each(|oid| pack.check(*oid))?;
    let mut walk = here.revwalk().map_err(failed)?;
    walk.set_sorting(Sort::TOPOLOGICAL | Sort::REVERSE).map_err(failed)?;
    for oid in wanted {
        walk.push(*oid).map_err(failed)?;
    }
    // Commits that do not exist here are ignored.
    for oid in there.iter().filter(|oid| here.find_commit(**oid).is_ok()) {
        walk.hide(*oid).map_err(failed)?;
    }
    for (count, oid) in walk.enumerate() {
        let oid = oid.map_err(failed)?;
        let commit = here.find_commit(oid).map_err(failed)?;
        let before: Vec<Oid> = commit.parents().map(|parent| parent.tree_id()).collect();
        match pack.tree(&odb, &before, commit.tree_id()) {
            Err(TransferError::TooLarge) => return Ok(None),
            added => added?,
        }
        pack.commit(&odb, oid)?;
        if count >= bounds.commits {
            return Ok(None);
        }
    }
    Ok(Some(pack.take()))
}

fn pack_folder(repository: &Repository) -> PathBuf {
    repository.commondir().join("objects/pack")
}

fn between(kind: Kind, old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    match kind {
        Kind::Tree => delta::trees(old, new, out),
        Kind::Blob | Kind::Commit => delta::between(old, new, out),
    }
}

fn read<'o>(odb: &'o Odb<'_>, oid: Oid, kind: ObjectType) -> Result<git2::OdbObject<'o>, TransferError> {
    let object =
        object::read(odb, oid).map_err(|error| TransferError::Read { oid, said: error.message().to_owned() })?;
    if object.kind() != kind {
        return Err(TransferError::Read { oid, said: format!("it is a {}, not a {kind}", object.kind().str()) });
    }
    Ok(object)
}

#[cfg(test)]
mod tests;

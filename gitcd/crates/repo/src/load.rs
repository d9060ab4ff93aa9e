//! Loads a branch from the repository.
//!
//! Everything is cross-checked: the metadata must be the trie of its keys, every key must have its file and every file its key.
//! An inconsistency is an error that names the reference, the commit and the path in it.

use std::num::NonZero;
use std::panic;
use std::path::Path;
use std::thread;

use bytes::Bytes;
use git2::{Oid, Repository};
use gitcd_core::keyspace::{KeySpace, Placement};
use gitcd_core::path;
use gitcd_merge::form;

use super::entries::{Entries, Entry};
use super::key_record::{KeyRecord, Location, Record};
use super::reader::{LoadError, Parents, Problem, Reader};
use super::state::{FORMAT, State};
use super::tree::Tree;
use super::trie::Trie;

/// Maximum number of threads: each has its own view of the repository, so more gain little.
const MOST_THREADS: usize = 4;
/// Minimum number of keys for a thread.
const LEAST_SHARE: usize = 2_000;

/// The content of a branch as of a metadata commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The state of the branch.
    pub state: State,
    /// Every key, unordered.
    pub keys: Vec<LoadedKey>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedKey {
    /// The whole key.
    pub key: Bytes,
    /// Its value, exactly as it was put.
    pub value: Bytes,
    /// Its revisions.
    pub record: Record,
}

/// The names of a branch's references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// Such as `refs/heads/main`.
    pub data: String,
    /// Such as `refs/gitcd/metadata/main`.
    pub metadata: String,
}

/// A branch without its values.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) metadata: Oid,
    pub(super) parents: Parents,
    pub(super) data: Tree,
    pub(super) local: Tree,
    pub(super) trie: Trie,
    pub(super) state: State,
    pub(super) root: Entries,
}

impl Snapshot {
    pub(super) fn read(repository: &Repository, names: &Names, metadata: Oid) -> Result<Self, LoadError> {
        let reader = Reader::new(repository, &names.metadata, metadata)?;
        let parents = reader.parents()?;
        let root = reader.entries(b"", reader.commit()?.1)?;
        let state = state(&reader, &root)?;
        let (kind, oid) = keys(&reader, &root)?;
        let trie = Trie::new(reader.node(&mut b"keys".to_vec(), kind, oid)?)
            .map_err(|problem| reader.error(b"keys", problem))?;
        let local = match root.find(Entry::Directory, b"local") {
            Some(oid) => reader.tree(b"local", oid)?,
            None => Tree::default(),
        };
        let data_reader = Reader::new(repository, &names.data, parents.data)?;
        let data = data_reader.tree(b"", data_reader.commit()?.1)?;
        Ok(Snapshot { metadata, parents, data, local, trie, state, root })
    }

    /// Reads the values, with several threads if there are many.
    pub(super) fn load(self, repository: &Repository, names: &Names, space: &KeySpace) -> Result<Loaded, LoadError> {
        let mut lines = Vec::with_capacity(self.trie.len());
        self.trie.each(|line| lines.push(line));
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
        let share = lines.len().div_ceil(threads).max(LEAST_SHARE);
        let shares = lines.len().div_ceil(share).max(1);
        let mut keys = if shares == 1 {
            self.values(repository, names, space, &lines)?
        } else {
            let folder = repository.path();
            let parts: Vec<Result<Vec<LoadedKey>, LoadError>> = thread::scope(|scope| {
                let read = |part| self.values_apart(folder, names, space, part);
                let started: Vec<_> = lines.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
                started
                    .into_iter()
                    .map(|thread| thread.join().unwrap_or_else(|why| panic::resume_unwind(why)))
                    .collect()
            });
            let mut keys = Vec::with_capacity(lines.len());
            for part in parts {
                keys.append(&mut part?);
            }
            keys
        };
        keys.shrink_to_fit();
        let local_keys = lines.iter().filter(|line| line.home == Location::Local).count();
        drop(lines);
        // Different keys have different paths, so with equal counts every file has a key.
        if self.data.len() != keys.len() - local_keys {
            let data = Reader::new(repository, &names.data, self.parents.data)?;
            return Err(self.file_without_key(&data, &self.data, Location::Data, space));
        }
        if self.local.len() != local_keys {
            let local = Reader::new(repository, &names.metadata, self.metadata)?;
            return Err(self.file_without_key(&local, &self.local, Location::Local, space));
        }
        Ok(Loaded { state: self.state, keys })
    }

    /// Reads the values of some keys on its own thread: libgit2's objects cannot be shared.
    fn values_apart(
        &self,
        folder: &Path,
        names: &Names,
        space: &KeySpace,
        lines: &[&KeyRecord],
    ) -> Result<Vec<LoadedKey>, LoadError> {
        let repository = Repository::open_bare(folder).map_err(|source| LoadError {
            reference: names.data.clone(),
            commit: self.parents.data,
            path: String::new(),
            problem: Problem::Unreadable { oid: self.parents.data, source },
        })?;
        self.values(&repository, names, space, lines)
    }

    fn values(
        &self,
        repository: &Repository,
        names: &Names,
        space: &KeySpace,
        lines: &[&KeyRecord],
    ) -> Result<Vec<LoadedKey>, LoadError> {
        let data = Reader::new(repository, &names.data, self.parents.data)?;
        let local = Reader::new(repository, &names.metadata, self.metadata)?;
        let mut path = Vec::new();
        let read = |line: &&KeyRecord| {
            let (reader, tree) = match line.home {
                Location::Data => (&data, &self.data),
                Location::Local => (&local, &self.local),
            };
            let value = value(reader, tree, space, line, &mut path)?;
            Ok(LoadedKey { key: line.key.clone(), value, record: line.record })
        };
        lines.iter().map(read).collect()
    }

    fn file_without_key(&self, reader: &Reader<'_>, tree: &Tree, home: Location, space: &KeySpace) -> LoadError {
        let mut known = std::collections::HashSet::new();
        self.trie.each(|line| {
            if line.home == home {
                let mut path = Vec::new();
                if place(space, line, &mut path) {
                    known.insert(path);
                }
            }
        });
        let mut unknown = Vec::new();
        tree.each(|path, _| {
            let key_path = path.strip_suffix(b"/%value").unwrap_or(path);
            if unknown.is_empty() && !known.contains(key_path) {
                unknown = path.to_vec();
            }
        });
        reader.error(&unknown, Problem::NoKey)
    }
}

/// Reads the state of a branch, given the root of its metadata.
pub(super) fn state(reader: &Reader<'_>, root: &Entries) -> Result<State, LoadError> {
    let file = |name: &[u8]| match root.find(Entry::File, name) {
        Some(oid) => reader.blob(name, oid),
        None => Err(reader.error(name, Problem::Missing)),
    };
    let format = file(b"format")?;
    if format.data() != FORMAT {
        let found = String::from_utf8_lossy(format.data()).trim_end().into();
        return Err(reader.error(b"format", Problem::Format(found)));
    }
    let mut state = State::parse_numbers(file(b"state")?.data()).map_err(|problem| reader.error(b"state", problem))?;
    state.leases = State::parse_leases(file(b"leases")?.data()).map_err(|problem| reader.error(b"leases", problem))?;
    Ok(state)
}

/// Returns the root of the trie.
pub(super) fn keys(reader: &Reader<'_>, root: &Entries) -> Result<(Entry, Oid), LoadError> {
    let found = [Entry::File, Entry::Directory].into_iter().find_map(|kind| Some((kind, root.find(kind, b"keys")?)));
    found.ok_or_else(|| reader.error(b"keys", Problem::Missing))
}

pub(super) fn value(
    reader: &Reader<'_>,
    tree: &Tree,
    space: &KeySpace,
    line: &KeyRecord,
    path: &mut Vec<u8>,
) -> Result<Bytes, LoadError> {
    let key = || line.key.escape_ascii().to_string();
    if !place(space, line, path) {
        return Err(reader.error(b"keys", Problem::Elsewhere(key())));
    }
    let oid = tree.find(path).ok_or_else(|| reader.error(path, Problem::NoFile(key())))?;
    let blob = reader.blob(path, oid)?;
    let value = form::decode(line.form, blob.data()).map_err(|problem| reader.error(path, problem))?;
    Ok(value.into())
}

/// Writes the path of a key to `path`; returns `false` if the key prefix contradicts the recorded location.
pub(super) fn place(space: &KeySpace, line: &KeyRecord, path: &mut Vec<u8>) -> bool {
    let key = match (line.home, space.placement(&line.key)) {
        (Location::Data, Placement::Data) => space.relative(&line.key),
        // A key that became ephemeral after it was committed stays where it was until it is deleted.
        (Location::Data, Placement::Ephemeral) if line.key.starts_with(&space.absolute(b"")) => {
            space.relative(&line.key)
        }
        (Location::Local, Placement::Local | Placement::Ephemeral) => &line.key,
        _ => return false,
    };
    join(key, path);
    true
}

/// Writes the path of a data key's relative part, or of a local key, to `path`.
pub(super) fn join(key: &[u8], path: &mut Vec<u8>) {
    path.clear();
    for name in path::encode(key) {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
    }
}

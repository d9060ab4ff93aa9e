//! Follows a branch that another process writes: read once, then advanced from one metadata commit to a later one.
//!
//! Objects with equal IDs are skipped, so that the cost grows with the difference: a leaf of the trie for every written key, and
//! the directories on the path to its value.

use std::collections::HashMap;

use bytes::Bytes;
use git2::{Oid, Repository};
use gitcd_merge::form;

use super::branch::Config;
use super::changes::{self, TreeError};
use super::entries::{Entries, Entry};
use super::key_record::{KeyRecord, Location};
use super::load::{self, Loaded, LoadedKey, Names, Snapshot};
use super::reader::{LoadError, Problem, Reader};
use super::state::State;
use super::trie::Trie;
use crate::git_dir;

/// Reads a branch from the objects of its own repository, without its references.
#[derive(Debug)]
pub struct Follower {
    config: Config,
    names: Names,
    /// The last metadata commit read.
    at: Oid,
}

/// The difference between two metadata commits.
#[derive(Debug)]
pub struct Step {
    /// The branch's state after it.
    pub state: State,
    /// The data commit.
    pub data: Oid,
    /// Written keys, in their current versions.
    pub put: Vec<LoadedKey>,
    /// Deleted keys.
    pub gone: Vec<Bytes>,
}

type Node = Option<(Entry, Oid)>;

impl Follower {
    /// Reads all keys and values as of a metadata commit. Also returns its data commit.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn open(config: Config, metadata: Oid) -> Result<(Self, Loaded, Oid), LoadError> {
        let names = Names { data: config.data_reference.clone(), metadata: config.metadata_reference.clone() };
        let follower = Self { config, names, at: metadata };
        let repository = follower.repository(metadata)?;
        let snapshot = Snapshot::read(&repository, &follower.names, metadata)?;
        let data = snapshot.parents.data;
        let loaded = snapshot.load(&repository, &follower.names, &follower.config.keys)?;
        Ok((follower, loaded, data))
    }

    /// Returns the changes up to a later metadata commit. Can be retried after an error.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn advance(&mut self, metadata: Oid) -> Result<Step, LoadError> {
        // Reopen the repository: packs come and go with every exchange, and an open one keeps packs that are gone.
        let repository = self.repository(metadata)?;
        let reader = |commit| Reader::new(&repository, &self.names.metadata, commit);
        let (before, after) = (reader(self.at)?, reader(metadata)?);
        let root = |reader: &Reader<'_>| reader.entries(b"", reader.commit()?.1);
        let (old_root, root) = (root(&before)?, root(&after)?);
        let state = load::state(&after, &root)?;
        let data = after.parents()?.data;
        let mut lines = Lines::default();
        let (from, to) = (load::keys(&before, &old_root)?, load::keys(&after, &root)?);
        lines.differing((&before, Some(from)), (&after, Some(to)), &mut b"keys".to_vec())?;
        let Lines { old, new } = lines;
        let old: HashMap<Bytes, KeyRecord> = old.into_iter().map(|line| (line.key.clone(), line)).collect();
        let is_there: std::collections::HashSet<&Bytes> = new.iter().map(|line| &line.key).collect();
        let gone = old.keys().filter(|key| !is_there.contains(key)).cloned().collect();
        let values = Values::new(&repository, &self.config, &self.names, (&after, &root), data)?;
        // Compare records: the stored form may differ where the value does not.
        let is_written = |line: &&KeyRecord| old.get(&line.key).is_none_or(|before| before.record != line.record);
        let put = new.iter().filter(is_written).map(|line| {
            let value = values.of(line)?;
            Ok(LoadedKey { key: line.key.clone(), value, record: line.record })
        });
        let put = put.collect::<Result<_, LoadError>>()?;
        self.at = metadata;
        Ok(Step { state, data, put, gone })
    }

    fn repository(&self, metadata: Oid) -> Result<Repository, LoadError> {
        Repository::open(git_dir(&self.config.repository)).map_err(|source| LoadError {
            reference: self.names.metadata.clone(),
            commit: metadata,
            path: String::new(),
            problem: Problem::Unreadable { oid: metadata, source },
        })
    }
}

/// The key records of leaves that differ.
#[derive(Debug, Default)]
struct Lines {
    old: Vec<KeyRecord>,
    new: Vec<KeyRecord>,
}

impl Lines {
    fn differing(
        &mut self,
        (before, from): (&Reader<'_>, Node),
        (after, to): (&Reader<'_>, Node),
        path: &mut Vec<u8>,
    ) -> Result<(), LoadError> {
        if from == to {
            return Ok(());
        }
        if let (Some((Entry::Directory, from)), Some((Entry::Directory, to))) = (from, to) {
            let (from, to) = (before.entries(path, from)?, after.entries(path, to)?);
            let length = path.len();
            for digit in b"0123456789abcdef" {
                path.extend([b'/', *digit]);
                self.differing((before, child(&from, *digit)), (after, child(&to, *digit)), path)?;
                path.truncate(length);
            }
            return Ok(());
        }
        // A leaf has become an inner node, or the other way round.
        let mut all = |reader: &Reader<'_>, node: Node, lines: &mut Vec<KeyRecord>| -> Result<(), LoadError> {
            if let Some((kind, oid)) = node {
                lines.extend(Trie::lines_of(&reader.node(path, kind, oid)?));
            }
            Ok(())
        };
        all(before, from, &mut self.old)?;
        all(after, to, &mut self.new)
    }
}

fn child(node: &Entries, digit: u8) -> Node {
    [Entry::File, Entry::Directory].into_iter().find_map(|kind| Some((kind, node.find(kind, &[digit])?)))
}

/// Reads values one at a time.
struct Values<'v> {
    repository: &'v Repository,
    config: &'v Config,
    data: (Reader<'v>, Oid),
    local: (&'v Reader<'v>, Option<Oid>),
}

impl<'v> Values<'v> {
    fn new(
        repository: &'v Repository,
        config: &'v Config,
        names: &'v Names,
        (metadata, root): (&'v Reader<'v>, &Entries),
        data: Oid,
    ) -> Result<Self, LoadError> {
        let reader = Reader::new(repository, &names.data, data)?;
        let tree = reader.commit()?.1;
        let local = root.find(Entry::Directory, b"local");
        Ok(Self { repository, config, data: (reader, tree), local: (metadata, local) })
    }

    fn of(&self, line: &KeyRecord) -> Result<Bytes, LoadError> {
        let (reader, tree, relative) = match line.home {
            Location::Data => (&self.data.0, Some(self.data.1), self.config.keys.relative(&line.key)),
            Location::Local => (self.local.0, self.local.1, &line.key[..]),
        };
        let failed = |TreeError { oid, problem }: TreeError| {
            reader.error(relative, Problem::Unreadable { oid, source: git2::Error::from_str(&problem) })
        };
        let found = tree.map(|tree| changes::find(self.repository, tree, relative)).transpose().map_err(failed)?;
        let missing = || reader.error(relative, Problem::NoFile(line.key.escape_ascii().to_string()));
        let blob = reader.blob(relative, found.flatten().ok_or_else(missing)?)?;
        let value = form::decode(line.form, blob.data()).map_err(|problem| reader.error(relative, problem))?;
        Ok(value.into())
    }
}

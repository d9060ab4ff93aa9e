//! A branch: a data reference and a metadata reference that move together.
//!
//! [`Branch::commit`] turns revisions into objects of the open pack, one data commit a call; [`Branch::flush`] adds
//! one metadata commit, puts the pack into the repository and moves both references. Readers of the repository see
//! nothing before that, and everything at once after it.
//!
//! ```
//! use std::time::SystemTime;
//! use gitcd::git::branch::{Action, Branch, Change, Config, Record, Revisions, State};
//! use gitcd::keyspace::KeySpace;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let repository = folder.path().join("store.git");
//! let config = Config {
//!     repository,
//!     name: "default".into(),
//!     data_reference: "refs/heads/main".into(),
//!     metadata_reference: "refs/gitcd/metadata/main".into(),
//!     keys: KeySpace::new("/registry", [""; 0]),
//!     committer_name: "gitcd".into(),
//!     committer_email: "gitcd@localhost".into(),
//! };
//! let mut state = State { revision: 1, incarnation: "a".into(), ..State::default() };
//! let mut branch = Branch::create(config, &state)?;
//! let record = Record { create_revision: 2, mod_revision: 2, version: 1, lease: 0 };
//! let put = Action::Put { value: "{}".into(), record };
//! branch.commit(&Revisions {
//!     first: 2,
//!     last: 2,
//!     time: SystemTime::now(),
//!     clients: vec!["kubectl/v1.36.3".into()],
//!     changes: vec![Change { key: "/registry/pods/default/nginx".into(), action: put }],
//! })?;
//! state.revision = 2;
//! let flushed = branch.flush(&state)?;
//! assert_eq!(branch.load(flushed.pair.metadata)?.keys.len(), 1);
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use git2::{Oid, Repository};

use super::delta;
use super::entries::{Entries, Entry};
use super::form;
use super::line::{Home, Line};
use super::load::{self, Loaded, Names, Snapshot};
use super::message::{self, Subject, Verb};
use super::pack::{self, Kind, Placed};
use super::path;
use super::refs::Refs;
use super::tree::Tree;
use super::trie::Trie;
use crate::keyspace::{KeySpace, Placement};

mod error;
mod flush;
mod open;
#[cfg(test)]
mod tests;

pub use super::line::Record;
pub use super::load::{LoadError, LoadedKey};
pub use super::pair::Pair;
pub use super::state::State;
pub use error::{AdoptError, CommitError, CreateError, FlushError, OpenError};
pub use flush::Flushed;

/// Which branch of which repository, and how it is written.
#[derive(Debug, Clone)]
pub struct Config {
    /// A bare repository, or a folder with one in `.git`.
    pub repository: PathBuf,
    /// The branch's own name; its local state is in `gitcd/<name>/` of the repository. One plain file name.
    pub name: String,
    /// Such as `refs/heads/main`.
    pub data_reference: String,
    /// Such as `refs/gitcd/metadata/main`.
    pub metadata_reference: String,
    /// Which keys belong into the data tree.
    pub keys: KeySpace,
    /// Author and committer of every commit.
    pub committer_name: String,
    /// Their e-mail address.
    pub committer_email: String,
}

/// One or more successive revisions that become one data commit.
#[derive(Debug, Clone)]
pub struct Revisions {
    /// The first revision.
    pub first: i64,
    /// The last revision.
    pub last: i64,
    /// When the last one was made.
    pub time: SystemTime,
    /// Who made them, as far as known.
    pub clients: Vec<String>,
    /// The last state of every key that changed.
    pub changes: Vec<Change>,
}

/// What has become of a key.
#[derive(Debug, Clone)]
pub struct Change {
    /// The whole key.
    pub key: Bytes,
    /// Its new state.
    pub action: Action,
}

/// The new state of a key.
#[derive(Debug, Clone)]
pub enum Action {
    /// It has this value; whether it is new is known here.
    Put {
        /// The exact value.
        value: Bytes,
        /// Its revisions.
        record: Record,
    },
    /// It is gone. Nothing happens if it was not there.
    Delete,
}

/// What the open pack holds so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// Its size.
    pub pack_bytes: usize,
    /// Its data commits.
    pub commits: usize,
    /// Bytes for directories that had to be written whole, and an estimate of those for the metadata: every flush
    /// pays them again for what it touches, so flushing less often saves them.
    pub overhead_bytes: usize,
    /// The rest: values, deltas, commits.
    pub useful_bytes: usize,
}

/// A branch that is open for writing. Only one may be open at a time; the caller holds a lock.
///
/// Directories and metadata of all keys are in memory, values only while they are in the open pack.
pub struct Branch {
    config: Config,
    names: Names,
    repository: Repository,
    refs: Refs,
    /// `Name <address> `, cleaned.
    identity: String,
    /// The last pair that is in the repository, and what it says.
    head: Pair,
    state: State,
    /// The root of the last metadata commit.
    root: Entries,
    /// The data commit to build upon.
    data_commit: Oid,
    data: Tree,
    local: Tree,
    trie: Trie,
    pack: pack::Writer,
    /// Former versions of values in the open pack, by key.
    values: HashMap<Bytes, Value>,
    /// Values of local keys that the next metadata commit brings in: only their last versions are ever referred to.
    local_values: HashMap<Bytes, (Oid, Bytes)>,
    local_changed: bool,
    commits: usize,
    overhead: usize,
    time: Option<SystemTime>,
    path: Vec<u8>,
    scratch: Vec<u8>,
    /// An error has left memory ahead of the repository.
    failed: bool,
}

struct Value {
    placed: Placed,
    blob: Vec<u8>,
}

impl std::fmt::Debug for Branch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Branch")
            .field("name", &self.config.name)
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

impl Branch {
    /// The last flushed pair.
    pub fn head(&self) -> Pair {
        self.head
    }

    /// What the last flushed metadata says about the branch as a whole.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Number of keys, unflushed changes included.
    pub fn keys(&self) -> usize {
        self.trie.len()
    }

    /// What a flush would write now.
    pub fn pending(&self) -> Pending {
        let overhead_bytes = self.overhead + self.trie.stale_bytes();
        Pending {
            pack_bytes: self.pack.len(),
            commits: self.commits,
            overhead_bytes,
            useful_bytes: self.pack.len() - self.overhead,
        }
    }

    /// Reads all keys and values as of a metadata commit, such as the head's.
    ///
    /// # Errors
    /// [`LoadError`] if something of it is missing, damaged or inconsistent.
    pub fn load(&self, metadata: Oid) -> Result<Loaded, LoadError> {
        Snapshot::read(&self.repository, &self.names, metadata)?.load(
            &self.repository,
            &self.names,
            &self.config.keys,
        )
    }

    /// Adds revisions to the open pack: values, changed directories, and one data commit unless only local keys changed.
    ///
    /// Takes a few microseconds a change and directory level, plus hashing every changed directory. Nothing is read from or
    /// written to disk.
    ///
    /// # Errors
    /// [`CommitError`]; nothing has been added then.
    pub fn commit(&mut self, revisions: &Revisions) -> Result<(), CommitError> {
        self.check(revisions)?;
        let mut subject = Subject::default();
        for change in &revisions.changes {
            match &change.action {
                Action::Put { value, record } => {
                    self.put(&change.key, value, *record, &mut subject);
                }
                Action::Delete => self.delete(&change.key, &mut subject),
            }
        }
        self.time = Some(revisions.time);
        if !subject.is_empty() {
            let tree = self.data.write(&mut self.pack);
            self.overhead += self.data.take_overhead();
            let trailers = message::trailers(revisions.first, revisions.last, &revisions.clients);
            let message = format!("{}\n\n{trailers}", subject.text());
            self.data_commit =
                self.write_commit(tree, &[self.data_commit], revisions.time, &message);
            self.commits += 1;
        }
        Ok(())
    }

    fn check(&self, revisions: &Revisions) -> Result<(), CommitError> {
        if self.failed {
            return Err(CommitError::Failed);
        }
        for Change { key, action } in &revisions.changes {
            // What is in Git may always be deleted, though it be ephemeral by now.
            if matches!(action, Action::Put { .. }) {
                let committed = match self.config.keys.placement(key) {
                    Placement::Data => self.config.keys.relative(key),
                    Placement::Local => key,
                    Placement::Ephemeral => {
                        return Err(CommitError::Ephemeral {
                            key: key.escape_ascii().to_string(),
                        });
                    }
                };
                if !path::fits(committed) {
                    return Err(CommitError::TooDeep {
                        key: key.escape_ascii().to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, key: &Bytes, value: &Bytes, record: Record, subject: &mut Subject) {
        let (form, blob) = form::encode(value);
        let is_data = self.config.keys.placement(key) == Placement::Data;
        // The value of a local key is exact: nobody reads it in a diff.
        let (home, form, blob) = if is_data {
            (Home::Data, form, &*blob)
        } else {
            (Home::Local, form::Form::Raw, &**value)
        };
        let line = Line {
            key: key.clone(),
            record,
            form,
            home,
        };
        load::place(&self.config.keys, &line, &mut self.path);
        let is_new = self.trie.put(line);
        let oid = pack::id(Kind::Blob, blob);
        if !is_data {
            self.local.put(&self.path, oid);
            self.local_values.insert(key.clone(), (oid, value.clone()));
            self.local_changed = true;
            return;
        }
        if self.data.find(&self.path) != Some(oid) {
            self.data.put(&self.path, oid);
            self.write_value(key, oid, blob);
        }
        self.describe(if is_new { Verb::Create } else { Verb::Update }, subject);
    }

    fn delete(&mut self, key: &Bytes, subject: &mut Subject) {
        let Some(line) = self.trie.remove(key) else {
            return;
        };
        self.values.remove(key);
        load::place(&self.config.keys, &line, &mut self.path);
        match line.home {
            Home::Data => {
                self.describe(Verb::Delete, subject);
                self.data.remove(&self.path);
            }
            Home::Local => {
                self.local.remove(&self.path);
                self.local_values.remove(key);
                self.local_changed = true;
            }
        }
    }

    /// Adds the change of the key at `self.path` to the subject, with the place of its value in the tree.
    fn describe(&self, verb: Verb, subject: &mut Subject) {
        let path = std::str::from_utf8(&self.path)
            .expect("the path encoding escapes everything but ASCII");
        if self.data.is_directory(&self.path) {
            subject.add(verb, &format!("{path}/%value"));
        } else {
            subject.add(verb, path);
        }
    }

    fn write_value(&mut self, key: &Bytes, oid: Oid, blob: &[u8]) {
        let Some(before) = self.values.get_mut(key) else {
            let placed = self.pack.whole(Kind::Blob, oid, blob);
            self.values.insert(
                key.clone(),
                Value {
                    placed,
                    blob: blob.to_vec(),
                },
            );
            return;
        };
        self.scratch.clear();
        let mut placed = None;
        if !before.placed.ends_chain() {
            delta::between(&before.blob, blob, &mut self.scratch);
            // Deflate would make about as little of the whole.
            if self.scratch.len() < blob.len() / 2 {
                placed = self.pack.delta(oid, &self.scratch, before.placed);
            }
        }
        before.placed = placed.unwrap_or_else(|| self.pack.whole(Kind::Blob, oid, blob));
        before.blob.clear();
        before.blob.extend_from_slice(blob);
    }

    fn write_commit(&mut self, tree: Oid, parents: &[Oid], time: SystemTime, message: &str) -> Oid {
        use std::fmt::Write;
        let seconds = time
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let mut content = format!("tree {tree}\n");
        for parent in parents {
            writeln!(content, "parent {parent}").expect("a string takes everything");
        }
        for role in ["author", "committer"] {
            writeln!(content, "{role} {}{seconds} +0000", self.identity)
                .expect("a string takes everything");
        }
        content.push('\n');
        content.push_str(message);
        let oid = pack::id(Kind::Commit, content.as_bytes());
        self.pack.whole(Kind::Commit, oid, content.as_bytes());
        oid
    }

    /// Adds a file to the metadata's root, writing it unless the last metadata commit has it already.
    fn write_file(&mut self, name: &[u8], content: &[u8]) {
        let oid = pack::id(Kind::Blob, content);
        if self.root.find(Entry::File, name) != Some(oid) {
            self.pack.whole(Kind::Blob, oid, content);
            self.root.set(Entry::File, name, oid);
        }
    }
}

/// What a reference was found to be.
fn show(found: Option<Oid>) -> String {
    found.map_or_else(|| "no commit".into(), |oid| oid.to_string())
}

//! A branch: a data reference and a metadata reference that move together.
//!
//! [`Branch::commit`] turns revisions into objects of the open pack, one data commit for each call. [`Branch::flush`] adds one
//! metadata commit, writes the pack to the repository and moves both references: then readers of the repository see all of it at
//! once.
//!
//! ```
//! use std::time::SystemTime;
//! use gitcd_repo::branch::{Action, Branch, Change, Config, Record, Revisions, State};
//! use gitcd_core::keyspace::KeySpace;
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
use std::time::SystemTime;

use bytes::Bytes;
use git2::{Oid, Repository};
use gitcd_core::keyspace::KeySpace;

use super::alternates::ObjectsInUse;
use super::entries::Entries;
use super::history_link::HistoryLink;
use super::load::{Names, Snapshot};
use super::pack::{self, Placed};
use super::refs::Refs;
use super::tree::Tree;
use super::trie::Trie;

mod adopt;
mod commit;
mod convert;
mod error;
mod external;
mod flush;
mod fork;
mod link;
mod merge;
mod open;
mod repository;
#[cfg(test)]
mod tests;

pub use super::committed_heads::{CommittedHeads, CommittedHeadsError};
pub use super::derive::Progress;
pub use super::entries::ParseError;
pub use super::key_record::LineError;
pub use super::key_record::Record;
pub use super::load::{Loaded, LoadedKey};
pub use super::pack_file::WriteError;
pub use super::reader::{LoadError, Problem};
pub use super::state::State;
pub use super::trie::ShapeError;
pub use adopt::{Check, Takeover};
pub use convert::Converted;
pub use error::{AdoptError, CommitError, CreateError, FlushError, OpenError};
use external::is_to_be_merged;
pub use flush::Flushed;
pub use fork::{ForkError, ForkObjects, ForkPoint, PastWrite};
pub use merge::{Joined, Merging};
pub use repository::is_absent;
pub use repository::{init as init_repository, open_repository};

/// The name of the branch that flags without a name apply to.
pub const DEFAULT_NAME: &str = "default";

/// The configuration of a branch: its repository and references, and how it is written.
#[derive(Debug, Clone)]
pub struct Config {
    /// A bare repository, or a folder with one in `.git`.
    pub repository: PathBuf,
    /// The branch's name; its local state is in `gitcd/<name>/` of the repository. A single plain file name.
    pub name: String,
    /// Such as `refs/heads/main`.
    pub data_reference: String,
    /// Such as `refs/gitcd/metadata/main`.
    pub metadata_reference: String,
    /// Which keys go into the data tree.
    pub keys: KeySpace,
    /// Author and committer of every commit.
    pub committer_name: String,
    /// Their email address.
    pub committer_email: String,
}

impl Config {
    /// Returns a branch with the default references for its name, the key prefix `/`, and gitcd as the committer.
    pub fn named(repository: PathBuf, name: &str) -> Self {
        let leaf = if name == DEFAULT_NAME { "main" } else { name };
        Self {
            repository,
            name: name.to_owned(),
            data_reference: format!("refs/heads/{leaf}"),
            metadata_reference: format!("refs/gitcd/metadata/{leaf}"),
            keys: KeySpace::new("/", Vec::<String>::new()),
            committer_name: "gitcd".to_owned(),
            committer_email: "gitcd@localhost".to_owned(),
        }
    }
}

/// Successive revisions that become one data commit.
#[derive(Debug, Clone)]
pub struct Revisions {
    /// The first revision.
    pub first: i64,
    /// The last revision.
    pub last: i64,
    /// The time of the last revision.
    pub time: SystemTime,
    /// The clients that wrote them, if known.
    pub clients: Vec<String>,
    /// The last state of every changed key.
    pub changes: Vec<Change>,
}

/// A change of a key.
#[derive(Debug, Clone)]
pub struct Change {
    /// The whole key.
    pub key: Bytes,
    /// The new state.
    pub action: Action,
}

/// The new state of a key.
#[derive(Debug, Clone)]
pub enum Action {
    /// Sets the value; the branch knows whether the key is new.
    Put {
        /// The exact value.
        value: Bytes,
        /// Its revisions.
        record: Record,
    },
    /// The key is deleted. A missing key is ignored.
    Delete,
}

/// The content of the open pack so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The pack's size.
    pub pack_bytes: usize,
    /// Number of data commits.
    pub commits: usize,
    /// Number of changes in these commits.
    pub changes: usize,
    /// Bytes of directories that had to be written whole, plus an estimate for the metadata: every flush writes these again for
    /// what it changes, so fewer flushes save them.
    pub overhead_bytes: usize,
    /// The other bytes: values, deltas, commits.
    pub useful_bytes: usize,
}

/// A branch that is open for writing. Only one may be open at a time; the caller holds the lock.
///
/// Directories and the metadata of all keys are in memory, values only while they are in the open pack.
pub struct Branch {
    config: Config,
    names: Names,
    repository: Repository,
    /// What the process had read when it was opened; see [`crate::object::bytes_read`].
    released_at: u64,
    refs: Refs,
    /// `Name <address> `, cleaned.
    identity: String,
    /// The last committed heads in the repository, and their state.
    head: CommittedHeads,
    state: State,
    /// An external commit on the data reference, which stays until a commit of ours has it as an ancestor.
    foreign: Option<Oid>,
    /// The root of the last metadata commit.
    root: Entries,
    /// The parent of the next data commit.
    data_commit: Oid,
    data: Tree,
    local: Tree,
    trie: Trie,
    pack: pack::Writer,
    /// See [`Branch::keep_packs_open`].
    open_below: usize,
    /// Last versions of values in the open pack, by key.
    values: HashMap<Bytes, Value>,
    /// Values of local keys for the next metadata commit, which only needs their last versions.
    local_values: HashMap<Bytes, (Oid, Bytes)>,
    local_changed: bool,
    commits: usize,
    /// Changes in these commits.
    changes: usize,
    /// History links for the next metadata commit.
    joins: Vec<HistoryLink>,
    overhead: usize,
    time: Option<SystemTime>,
    path: Vec<u8>,
    scratch: Vec<u8>,
    /// An error left memory ahead of the repository.
    failed: bool,
    /// Whether the local file records `head`.
    is_recorded: bool,
    /// Keeps the records of a temporary fork locked.
    _in_use: ObjectsInUse,
}

struct Value {
    placed: Placed,
    blob: Vec<u8>,
}

impl std::fmt::Debug for Branch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Branch").field("name", &self.config.name).field("head", &self.head).finish_non_exhaustive()
    }
}

impl Branch {
    /// Returns the last flushed heads.
    pub fn head(&self) -> CommittedHeads {
        self.head
    }

    /// Returns the data commit that the next flush makes visible.
    pub fn next(&self) -> Oid {
        self.data_commit
    }

    /// Returns an external commit on the data reference that is not merged yet.
    pub fn foreign(&self) -> Option<Oid> {
        self.foreign
    }

    /// Returns the branch's state in the last flushed metadata.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the number of keys, including unflushed changes.
    pub fn keys(&self) -> usize {
        self.trie.len()
    }

    /// Makes flushes extend the previous pack, by rewriting it, while it is smaller than `below` bytes. For a branch with many
    /// flushes per second: it gets fewer packs, and directories are not written whole each time.
    pub fn keep_packs_open(&mut self, below: usize) {
        self.open_below = below;
    }

    /// Returns what a flush would write now.
    pub fn pending(&self) -> Pending {
        let overhead_bytes = self.overhead + self.trie.stale_bytes();
        Pending {
            pack_bytes: self.pack.len(),
            commits: self.commits,
            changes: self.changes,
            overhead_bytes,
            useful_bytes: self.pack.len() - self.overhead,
        }
    }

    /// Reads all keys and values as of a metadata commit, such as the head's.
    ///
    /// # Errors
    /// [`LoadError`] if an object is missing, damaged or inconsistent.
    pub fn load(&self, metadata: Oid) -> Result<Loaded, LoadError> {
        Snapshot::read(&self.repository, &self.names, metadata)?.load(&self.repository, &self.names, &self.config.keys)
    }
}

/// Formats the target of a reference.
fn show(found: Option<Oid>) -> String {
    found.map_or_else(|| "no commit".into(), |oid| oid.to_string())
}

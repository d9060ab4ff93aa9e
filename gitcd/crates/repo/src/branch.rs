//! A branch: a data reference and a metadata reference that move together.
//!
//! [`Branch::commit`] turns revisions into objects of the open pack, one data commit a call; [`Branch::flush`] adds
//! one metadata commit, puts the pack into the repository and moves both references. Readers of the repository see
//! nothing before that, and everything at once after it.
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

use super::entries::Entries;
use super::graph::Graph;
use super::join::Join;
use super::load::{Names, Snapshot};
use super::pack::{self, Placed};
use super::refs::Refs;
use super::tree::Tree;
use super::trie::Trie;

mod adopt;
mod commit;
mod convert;
mod error;
mod flush;
mod merge;
mod open;
mod repository;
#[cfg(test)]
mod tests;

pub use super::derive::Progress;
pub use super::entries::ParseError;
pub use super::line::LineError;
pub use super::line::Record;
pub use super::load::{Loaded, LoadedKey};
pub use super::pack_file::WriteError;
pub use super::pair::{Pair, PairError};
pub use super::reader::{LoadError, Problem};
pub use super::state::State;
pub use super::trie::ShapeError;
pub use adopt::{Check, Takeover};
pub use convert::Converted;
pub use error::{AdoptError, CommitError, CreateError, FlushError, OpenError};
pub use flush::Flushed;
pub use merge::{Joined, Merging};
pub use repository::is_absent;
pub use repository::{init as init_repository, open_repository};

/// The name of the branch that flags without a name mean.
pub const DEFAULT_NAME: &str = "default";

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

impl Config {
    /// Returns a branch with the default references for its name, the key prefix `/`, and an empty committer.
    pub fn named(repository: PathBuf, name: &str) -> Self {
        let leaf = if name == DEFAULT_NAME { "main" } else { name };
        Self {
            repository,
            name: name.to_owned(),
            data_reference: format!("refs/heads/{leaf}"),
            metadata_reference: format!("refs/gitcd/metadata/{leaf}"),
            keys: KeySpace::new("/", Vec::<String>::new()),
            committer_name: String::new(),
            committer_email: String::new(),
        }
    }
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
    /// What somebody else put on the data reference: it stays there until a commit of ours has it in its history.
    foreign: Option<Oid>,
    /// The root of the last metadata commit.
    root: Entries,
    /// The data commit to build upon.
    data_commit: Oid,
    data: Tree,
    local: Tree,
    trie: Trie,
    pack: pack::Writer,
    /// See [`Branch::keep_packs_open`].
    open_below: usize,
    /// Former versions of values in the open pack, by key.
    values: HashMap<Bytes, Value>,
    /// Values of local keys that the next metadata commit brings in: only their last versions are ever referred to.
    local_values: HashMap<Bytes, (Oid, Bytes)>,
    local_changed: bool,
    commits: usize,
    /// What the next metadata commit has to say of histories that came together.
    joins: Vec<Join>,
    overhead: usize,
    time: Option<SystemTime>,
    path: Vec<u8>,
    scratch: Vec<u8>,
    /// An error has left memory ahead of the repository.
    failed: bool,
    /// Whether the file beside the repository says what `head` is.
    is_recorded: bool,
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
    /// The last flushed pair.
    pub fn head(&self) -> Pair {
        self.head
    }

    /// The data commit that the next flush makes visible.
    pub fn next(&self) -> Oid {
        self.data_commit
    }

    /// A commit that somebody else put on the data reference, and that is not merged yet.
    pub fn foreign(&self) -> Option<Oid> {
        self.foreign
    }

    /// What the last flushed metadata says about the branch as a whole.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Number of keys, unflushed changes included.
    pub fn keys(&self) -> usize {
        self.trie.len()
    }

    /// From now on a flush goes on with the pack of the one before, writing it again, while that is smaller than so many bytes.
    /// For a branch that is flushed many times a second: it has fewer packs, and directories are not written whole each time.
    pub fn keep_packs_open(&mut self, below: usize) {
        self.open_below = below;
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
        Snapshot::read(&self.repository, &self.names, metadata)?.load(&self.repository, &self.names, &self.config.keys)
    }
}

/// Whether a commit on the data reference is one to be merged: it can be read, and is not one of ours that the reference was
/// moved back to.
fn is_to_be_merged(repository: &Repository, found: Oid, ours: Oid) -> bool {
    let mut graph = Graph::default();
    matches!(graph.is_ancestor(repository, found, ours), Ok(false))
}

/// What a reference was found to be.
fn show(found: Option<Oid>) -> String {
    found.map_or_else(|| "no commit".into(), |oid| oid.to_string())
}

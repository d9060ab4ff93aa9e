//! The history of a branch, read from Git without a server and without changes.
//!
//! A [`History`] walks the metadata commits ([`flush`]), each of which records the store's revision. [`moment`] finds a state by
//! revision or time, [`versions`] all versions of a key, [`fields`] the differences between two of them, [`blame`] the commit that
//! wrote each field, [`find`] the commits that a user names.
//!
//! Source of the formats: `docs/design/git.md`.

pub mod blame;
mod commit_text;
pub mod commits;
pub mod conflicts;
pub mod exact;
pub mod fields;
pub mod find;
mod flush;
mod fork;
mod line;
pub mod managers;
pub mod moment;
mod named;
pub mod neighbours;
pub mod retention;
mod stop;
pub mod versions;
pub mod when;
pub mod who;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use git2::{Odb, Oid, Repository};
use gitcd_core::keyspace::{COMPACT_REVISION_KEY, KeySpace};
use gitcd_merge::form::{self, Form};

use gitcd_repo::boundary::{Boundary, BoundaryError};
use gitcd_repo::branch::Config;
use gitcd_repo::changes::{self, TreeError};
use gitcd_repo::git_dir;
use gitcd_repo::go;
use gitcd_repo::graph::GraphError;
use gitcd_repo::lookup::{self, Known, Lookup};
use gitcd_repo::object;
use gitcd_repo::reader::LoadError;
use gitcd_repo::refs::{RefError, Refs};
use gitcd_repo::verify::{Verified, verify};

pub use self::conflicts::ResolvedMerge;
use self::flush::Flush;
pub use self::flush::{CommitInfo, Revisions};
use self::stop::Stop;

/// How long a store may take between its updates of the two references in a flush.
const MOVED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The history of one branch.
pub struct History {
    repository: Repository,
    config: Config,
    tip: Flush,
    /// The target of the data reference, which may have external commits since the last flush.
    head: Oid,
    /// Whether this is a shallow clone, or the history was cut.
    is_shallow: bool,
    /// Where gitcd cut the history.
    boundary: Boundary,
    stop: Stop,
}

/// Why a history cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// There is no repository.
    #[error("{path:?} is not a Git repository: {problem}; set --repo")]
    Repository {
        /// The path.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The branch has no metadata.
    #[error(
        "{reference} is not in {path:?}: gitcd has not served this branch here; fetch it, or create it with `gitcd init`"
    )]
    NoBranch {
        /// The missing reference.
        reference: String,
        /// The repository.
        path: PathBuf,
    },
    /// The metadata was written by the Go implementation.
    #[error(
        "{reference} was written by the Go implementation of gitcd, which keeps its metadata in another way; convert it with `gitcd init`"
    )]
    OfGo {
        /// The metadata reference.
        reference: String,
    },
    /// The references cannot be read.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// A tree cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The metadata cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An object cannot be read.
    #[error("{oid}: {problem}")]
    Object {
        /// The object.
        oid: Oid,
        /// What is wrong.
        problem: String,
    },
    /// The branch did not exist then.
    #[error(
        "{asked} is before the first revision in Git, {first}, committed at {time}; give {first}, or a later revision or time"
    )]
    TooEarly {
        /// The requested moment.
        asked: String,
        /// The first revision in Git.
        first: i64,
        /// When it was committed.
        time: String,
    },
    /// The data existed then, but without revisions.
    #[error(
        "{asked} is before revision {first}, at which `gitcd init` took over the history of this branch; `gitcd log -p KEY` shows the earlier history"
    )]
    BeforeInit {
        /// The requested moment.
        asked: String,
        /// The revision at which the branch was taken over.
        first: i64,
    },
    /// The history of a shallow clone does not reach back so far.
    #[error(
        "{asked} is before revision {first}, at which this shallow clone begins; `git fetch --unshallow` brings the rest"
    )]
    Shallow {
        /// The requested moment.
        asked: String,
        /// The first revision in the clone.
        first: i64,
    },
    /// The history was cut.
    #[error(
        "{asked} is before revision {first}, at which the history begins: older history was cut on {date}, {archive_status}; read it there, \
         or fetch it with `git fetch --unshallow`"
    )]
    Cut {
        /// The requested moment.
        asked: String,
        /// The first revision that was kept.
        first: i64,
        /// The date of the cut.
        date: String,
        /// Where the removed commits are.
        archive_status: String,
    },
    /// No state of the branch has this commit.
    #[error("{asked} is not a moment of this branch: {problem}")]
    NoMoment {
        /// The requested commit.
        asked: String,
        /// Why not.
        problem: String,
    },
    /// The ancestry of commits cannot be read.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The end of the history cannot be read.
    #[error(transparent)]
    Boundary(#[from] BoundaryError),
    /// The revision has not happened yet, or is not committed yet.
    #[error("revision {asked} is not in Git; the last one is {last}")]
    TooLate {
        /// The requested revision.
        asked: i64,
        /// The last revision in Git.
        last: i64,
    },
    /// The read was [stopped](History::stopped_by).
    #[error("the read of the history was stopped before it was complete")]
    Stopped,
}

impl HistoryError {
    fn object(oid: Oid, problem: impl std::fmt::Display) -> Self {
        Self::Object { oid, problem: problem.to_string() }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("History")
            .field("repository", &self.repository.path())
            .field("tip", &self.tip)
            .finish_non_exhaustive()
    }
}

impl History {
    /// Opens a branch as it is in Git now. With `find_prefix`, the key prefix is derived from the keys, instead of taken from
    /// `config`.
    ///
    /// # Errors
    /// [`HistoryError`].
    pub fn open(mut config: Config, find_prefix: bool) -> Result<Self, HistoryError> {
        let path = git_dir(&config.repository);
        let repository = Repository::open(&path).map_err(|error| HistoryError::Repository {
            path: config.repository.clone(),
            problem: error.message().to_owned(),
        })?;
        let refs = Refs::open(&path)?;
        let read = |reference: &str| {
            let missing =
                || HistoryError::NoBranch { reference: reference.to_owned(), path: config.repository.clone() };
            refs.read(reference)?.ok_or_else(missing)
        };
        let (metadata, head) = (read(&config.metadata_reference)?, read(&config.data_reference)?);
        if go::is_metadata(&repository, metadata)? {
            return Err(HistoryError::OfGo { reference: config.metadata_reference });
        }
        let odb = repository.odb().map_err(|error| HistoryError::object(metadata, error.message()))?;
        let tip = Flush::read(&odb, metadata)?;
        let boundary = Boundary::read(repository.commondir())?;
        // The last flush may have no key.
        let mut flush = Some(tip.clone()).filter(|_| find_prefix);
        for _ in 0..MAX_PREFIX {
            let Some(found) = flush.take() else { break };
            if let Some(prefix) = prefix(&repository, &odb, &found)? {
                config.keys = KeySpace::new(&prefix, [""; 0]);
            } else {
                let is_there = |oid: &Oid| odb.exists(*oid) && !boundary.removed(*oid).unwrap_or(true);
                flush = found.previous.filter(is_there).map(|oid| Flush::read(&odb, oid)).transpose()?;
            }
        }
        drop(odb);
        let is_shallow = repository.is_shallow();
        Ok(Self { repository, config, tip, head, is_shallow, boundary, stop: Stop::default() })
    }

    /// Returns the last revision in Git.
    pub fn revision(&self) -> i64 {
        self.tip.revision
    }

    /// Returns whether the history is not whole: it was cut, or this is a clone with a limited depth.
    pub fn is_shallow(&self) -> bool {
        self.is_shallow
    }

    /// Returns the incarnation of the store: a random name for one lifetime of its local state.
    ///
    /// # Errors
    /// [`HistoryError`] if the metadata cannot be read.
    pub fn incarnation(&self) -> Result<String, HistoryError> {
        exact::incarnation(&self.odb()?, &self.tip)
    }

    /// Returns the opened repository. To open one again takes time with the square of the number of its packs.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Checks the current metadata against the data, every value against its stored form, and the data reference against the
    /// metadata. Calls `progress` with the number of keys checked and of all keys.
    ///
    /// # Errors
    /// [`HistoryError`] if the metadata cannot be read at all.
    pub fn verify(&self, progress: impl FnMut(usize, usize)) -> Result<Verified, HistoryError> {
        let mut verified = verify(&self.repository, &self.config, self.tip.metadata, progress)?;
        let (data, head) = (self.tip.data, self.settled_head()?);
        if !self.has(head, data) {
            let reference = &self.config.data_reference;
            verified
                .findings
                .push(format!("{reference} is at {head}, which does not follow {data}, which the metadata describes"));
        }
        Ok(verified)
    }

    /// Returns the head of the data. If it is behind the metadata, as in the middle of a flush, waits for a moment until it is not.
    fn settled_head(&self) -> Result<Oid, HistoryError> {
        let (data, mut head) = (self.tip.data, self.head);
        let refs = Refs::open(self.repository.path())?;
        let deadline = Instant::now() + MOVED_WITHIN;
        while !self.has(head, data) && self.has(data, head) && Instant::now() < deadline {
            std::thread::sleep(LOOK_EVERY);
            head = refs.read(&self.config.data_reference)?.unwrap_or(head);
        }
        Ok(head)
    }

    /// Returns whether a commit is another one, or follows it.
    fn has(&self, commit: Oid, other: Oid) -> bool {
        commit == other || self.repository.graph_descendant_of(commit, other).unwrap_or(false)
    }

    /// Returns which keys are data.
    pub fn keys(&self) -> &KeySpace {
        &self.config.keys
    }

    /// Completes a key that a user gave with or without the prefix of the branch. An existing key with exactly this name has
    /// precedence.
    ///
    /// # Errors
    /// [`HistoryError`] if the metadata cannot be read.
    pub fn whole_key(&self, name: &str) -> Result<Vec<u8>, HistoryError> {
        let (prefix, _) = self.config.keys.flags();
        let is_below = prefix != "/" && name.starts_with(&format!("{prefix}/"));
        let is_whole = is_below || name.starts_with('/') || name.as_bytes() == COMPACT_REVISION_KEY;
        let is_there =
            || Ok::<_, HistoryError>(known(&mut Lookup::new(name.as_bytes()), &self.odb()?, &self.tip)?.is_some());
        let is_whole = is_whole || is_there()?;
        Ok(if is_whole { name.as_bytes().to_vec() } else { self.config.keys.absolute(name.as_bytes()) })
    }

    /// Completes the start of keys that a user gave with or without the prefix of the branch.
    pub fn beginning(&self, name: &str) -> Vec<u8> {
        if name.starts_with('/') { name.as_bytes().to_vec() } else { self.config.keys.absolute(name.as_bytes()) }
    }

    /// Returns whether a whole key is in the data tree.
    pub fn is_data(&self, key: &[u8]) -> bool {
        self.relative(key).is_some()
    }

    /// Returns what follows the data prefix in a whole key; the whole key if it has another prefix.
    pub fn below_prefix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        self.relative(key).unwrap_or(key)
    }

    fn odb(&self) -> Result<Odb<'_>, HistoryError> {
        self.repository.odb().map_err(|error| HistoryError::object(self.tip.metadata, error.message()))
    }

    /// Returns the part of a key that its path encodes; `None` for a key that is not in the data tree.
    fn relative<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let start = self.config.keys.absolute(b"");
        key.strip_prefix(start.as_slice())
    }

    /// Reads a value, exactly as it was put if `form` is its stored form.
    ///
    /// # Errors
    /// [`HistoryError`] if the blob does not exist.
    pub fn value(&self, blob: Oid, form: Option<Form>) -> Result<Vec<u8>, HistoryError> {
        let odb = self.odb()?;
        let object = object::read(&odb, blob).map_err(|error| HistoryError::object(blob, error.message()))?;
        let data = object.data();
        let decoded = form.and_then(|form| form::decode(form, data).ok());
        Ok(decoded.or_else(|| form::decode(form::guess(data), data).ok()).unwrap_or_else(|| data.to_vec()))
    }
}

/// Maximum number of flushes searched for a key.
const MAX_PREFIX: usize = 10_000;

/// Derives the prefix of all data keys, which is not recorded in Git, from one key and the path of its file.
fn prefix(repository: &Repository, odb: &Odb<'_>, tip: &Flush) -> Result<Option<String>, HistoryError> {
    let tree = CommitInfo::read(odb, tip.data)?.tree;
    let Some(key) = lookup::any_data_key(odb, tip.tree)? else { return Ok(None) };
    let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for at in slashes {
        if at + 1 < key.len() && changes::find(repository, tree, &key[at + 1..])?.is_some() {
            return Ok(String::from_utf8(key[..at].to_vec()).ok().map(|prefix| prefix + "/"));
        }
    }
    Ok(None)
}

/// Returns what the metadata of a flush says about a key.
fn known(lookup: &mut Lookup, odb: &Odb<'_>, flush: &Flush) -> Result<Option<Known>, HistoryError> {
    Ok(lookup.find(odb, flush.tree)?)
}

//! Forks: a branch in a repository of its own that starts from a moment of another branch. It gets hard links to the objects of the
//! other repository, or reads them there, and writes only its own.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use git2::{Oid, Repository};
use gitcd_core::durable;
use gitcd_merge::form::{self, Form};

use super::super::boundary::{Boundary, RecordError};
use super::super::history_link::HistoryLink;
use super::super::key_record::{KeyRecord, Location, Record};
use super::super::load::{Names, Snapshot, join};
use super::super::partial::is_partial;
use super::super::reader::{LoadError, Problem, Reader};
use super::super::refs::Refs;
use super::link::link_objects;
use super::open::{Content, Data};
use super::repository::{init, open_repository};
use super::{Branch, CommittedHeads, Config, CreateError, FlushError, OpenError, State};

/// How a fork gets the objects of its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkObjects {
    /// By hard links, as `git clone --local` does: the fork has all that it needs, whatever happens to its origin. Copies them if the
    /// file system does not allow links.
    Linked,
    /// By `objects/info/alternates`, as `git clone --shared` does: it needs them in its origin. A gitcd that serves it, or a caller
    /// with [`ObjectsInUse::all`](crate::alternates::ObjectsInUse::all), keeps other gitcds from deleting them.
    Shared,
}

/// A moment of a branch from which a fork starts.
#[derive(Clone, Debug)]
pub struct ForkPoint {
    /// The last metadata commit at or before the moment.
    pub metadata: Oid,
    /// The data commit of the moment: the one that `metadata` describes, or a later one.
    pub data: Oid,
    /// The revision of the moment.
    pub revision: i64,
    /// The writes between the two, oldest first. Several writes of a key may be one.
    pub writes: Vec<PastWrite>,
    /// What is known exactly of some of the written keys, as of the moment.
    pub known: HashMap<Bytes, (Record, Form)>,
    /// The history links between the two.
    pub links: Vec<HistoryLink>,
}

/// A write of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastWrite {
    /// The whole key.
    pub key: Bytes,
    /// Its revision.
    pub revision: i64,
    /// Whether the key exists after it.
    pub exists: bool,
}

/// Why a fork could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The folder of the fork has something in it.
    #[error("{path:?} is not empty: a fork is made in a new folder")]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// Git cannot record the path of the shared objects.
    #[error("{path:?} has a line break in its name, so a fork cannot refer to it")]
    Path {
        /// The folder of the objects.
        path: PathBuf,
    },
    /// The origin fetches objects on demand.
    #[error(
        "{path:?} is a partial clone, so a fork may lack objects; fork a clone that was made without --filter, or fork this one with \
         --shared"
    )]
    Partial {
        /// The Git directory of the origin.
        path: PathBuf,
    },
    /// The history of the origin was cut while the fork was made, and the moment was removed.
    #[error("the history was cut meanwhile, and this moment was removed; remove {path:?}, and run the command again")]
    CutMeanwhile {
        /// The folder of the incomplete fork.
        path: PathBuf,
    },
    /// The repository cannot be created.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The repository cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The moment cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The file system returned an error.
    #[error(transparent)]
    Io(#[from] durable::Error),
    /// The boundary of the history cannot be copied.
    #[error(transparent)]
    Boundary(#[from] RecordError),
    /// The metadata of the fork cannot be written.
    #[error(transparent)]
    Flush(#[from] FlushError),
}

impl Branch {
    /// Creates the repository of `config`, which must not exist, with a branch that continues from a moment of a branch in the Git
    /// directory `origin`. Its history before the moment is that of the origin; in etcd's sense it is compacted. The moment must have
    /// been read while the objects of the origin were [marked as being read](crate::alternates::ObjectsInUse::all), and they still
    /// must be.
    ///
    /// Nothing is written to the origin. Takes about 2 µs for each key, 100 µs for each key that was written since the metadata
    /// commit, and a system call for each file with objects that is linked.
    ///
    /// # Errors
    /// [`ForkError`]; the folder may be left incomplete, and can be removed.
    pub fn fork(
        config: Config,
        origin: &Path,
        objects: ForkObjects,
        point: ForkPoint,
        incarnation: String,
    ) -> Result<Branch, ForkError> {
        let repository = create(&config, origin, objects, [point.data, point.metadata])?;
        let names = Names { data: config.data_reference.clone(), metadata: config.metadata_reference.clone() };
        let refs = Refs::open(repository.path()).map_err(OpenError::from)?;
        let ForkPoint { metadata, data, revision, writes, known, links } = point;
        let snapshot = Snapshot::read(&repository, &names, metadata)?;
        let Snapshot { local, mut trie, state: before, root, data: mut tree, .. } = snapshot;
        let leases: BTreeSet<i64> = before.leases.iter().map(|(id, _)| *id).collect();
        let mut last = revision;
        {
            let reader = Reader::new(&repository, &names.data, data)?;
            if !writes.is_empty() {
                tree = reader.tree(b"", reader.commit()?.1)?;
            }
            let written: BTreeSet<Bytes> = writes.iter().map(|write| write.key.clone()).collect();
            for write in writes {
                last = last.max(write.revision);
                apply(&mut trie, write);
            }
            let mut path = Vec::new();
            for key in written {
                let Some(mut line) = trie.remove(&key) else { continue };
                if let Some((record, form)) = known.get(&key) {
                    (line.record, line.form) = (*record, *form);
                    last = last.max(record.mod_revision);
                } else {
                    join(config.keys.relative(&key), &mut path);
                    let missing = || reader.error(&path, Problem::NoFile(key.escape_ascii().to_string()));
                    let blob = tree.find(&path).ok_or_else(missing)?;
                    line.form = form::guess(reader.blob(&path, blob)?.data());
                }
                // A lease that was granted after the metadata commit is not known.
                if !leases.contains(&line.record.lease) {
                    line.record.lease = 0;
                }
                trie.put(line);
            }
        }
        let state = State { revision: last, compact_revision: last, incarnation, leases: before.leases };
        let heads = CommittedHeads { data, metadata };
        let content = Content { data: tree, local, trie, root };
        let mut branch = Branch::new(config, repository, refs, heads, State::default(), content);
        branch.joins = links;
        // It follows that of the origin, but the reference is new.
        let metadata = branch.write_metadata(&state, Some(metadata));
        branch.begin_at(&state, metadata, (None, Data::Moves { from: None }))?;
        Ok(branch)
    }
}

/// Applies a write to the metadata of its key. The form of the value is not known yet.
fn apply(trie: &mut super::super::trie::Trie, write: PastWrite) {
    let PastWrite { key, revision, exists } = write;
    let before = trie.remove(&key);
    if !exists {
        return;
    }
    let new = Record { create_revision: revision, mod_revision: revision, version: 1, lease: 0 };
    let record = before.map_or(new, |line| Record {
        mod_revision: revision,
        version: line.record.version.saturating_add(1),
        ..line.record
    });
    trie.put(KeyRecord { key, record, form: Form::Raw, home: Location::Data });
}

/// Creates the repository, with the objects of its origin, for a moment with these commits.
fn create(config: &Config, origin: &Path, how: ForkObjects, moment: [Oid; 2]) -> Result<Repository, ForkError> {
    let path = &config.repository;
    if how == ForkObjects::Linked && is_partial(origin) {
        return Err(ForkError::Partial { path: origin.to_owned() });
    }
    if open_repository(path).map_or(true, |found| found.is_some()) {
        return Err(ForkError::Exists { path: path.clone() });
    }
    let objects = origin.join("objects");
    let objects = objects.canonicalize().map_err(durable::Error::of("find", &objects))?;
    let mut line = objects.as_os_str().as_bytes().to_vec();
    if line.contains(&b'\n') && how == ForkObjects::Shared {
        return Err(ForkError::Path { path: objects });
    }
    line.push(b'\n');
    durable::make_folder(path)?;
    let made = init(config)?;
    match how {
        ForkObjects::Linked => link_objects(origin, &made.path().join("objects"))?,
        ForkObjects::Shared => {
            let info = made.path().join("objects/info");
            durable::make_folder(&info)?;
            durable::replace(&info.join("alternates"), &line)?;
        }
    }
    Boundary::copy(origin, made.path())?;
    // The origin may have been cut since the moment was read.
    let boundary = Boundary::read(made.path()).map_err(RecordError::from)?;
    for commit in moment {
        if boundary.removed(commit).map_err(RecordError::from)? {
            return Err(ForkError::CutMeanwhile { path: path.clone() });
        }
    }
    // libgit2 reads the alternates when it opens a repository.
    open_repository(path)?.ok_or_else(|| ForkError::Exists { path: path.clone() })
}

//! From disk to a running store: lock, Git, snapshot, journal.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use git2::Oid;
use rustix::fs::FlockOperation;

use crate::git::branch::{self, Branch, Config, CreateError, LoadError, State};
use crate::git::refs::{RefError, Refs};
use crate::journal;
use crate::journal::record::{Record, Write};
use crate::journal::recovery::{RecoverError, Replayed, recover};
use crate::keyspace::Placement;
use crate::snapshot::{Incarnation, Snapshot, SnapshotError, hex};
use crate::store::Start;
use crate::store::index::Index;
use crate::store::lease::Leases;
use crate::store::revision::Revision;
use crate::store::version::Version;

/// A branch that resumes without its local state jumps ahead by so much: more than could have been acknowledged and
/// never committed, since the journal is bounded.
pub const RESERVED_REVISIONS: i64 = 1 << 32;

/// Why a branch cannot be served. Nothing of it was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no branch yet.
    #[error("{repository:?} has no branch {reference}; make it with `gitcd init --repo={}`", repository.display())]
    Missing {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
    },
    /// Another process serves it.
    #[error(
        "branch {reference} of {repository:?} is served by another gitcd (it holds {lock:?}); a branch has one writer"
    )]
    Locked {
        /// The repository.
        repository: PathBuf,
        /// The data reference.
        reference: String,
        /// The lock.
        lock: PathBuf,
    },
    /// The state folder cannot be used.
    #[error("cannot use {path:?}: {source}; gitcd needs to read and write it")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The prefixes are not those that the branch was served with.
    #[error(
        "the branch was served with other prefixes: {path:?} says\n{recorded}and now it is\n{given}\
         where a key is kept depends on them; serve it with the recorded --key-prefixes and --ephemeral-prefixes"
    )]
    Keys {
        /// Where they are recorded.
        path: PathBuf,
        /// What is recorded.
        recorded: String,
        /// What the flags say.
        given: String,
    },
    /// The branch in Git cannot be used.
    #[error(transparent)]
    Branch(#[from] Box<branch::OpenError>),
    /// The content of the branch cannot be read.
    #[error(transparent)]
    Load(#[from] Box<LoadError>),
    /// The branch cannot be made.
    #[error(transparent)]
    Create(#[from] Box<CreateError>),
    /// The existing history cannot become a branch.
    #[error(transparent)]
    Adopt(#[from] Box<branch::AdoptError>),
    /// A reference cannot be read.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The journal is damaged.
    #[error(transparent)]
    Journal(#[from] RecoverError),
    /// The snapshot is damaged.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// A branch that resumes from Git cannot record that there.
    #[error(transparent)]
    Flush(#[from] branch::FlushError),
    /// Git lost commits that the journal relies on.
    #[error(
        "{reference} is at revision {found}, but the journal starts at {base}: somebody moved the branch back; move it forward \
         with `git update-ref {reference} {metadata}` and `git update-ref {data_reference} {metadata}^2`, or move {folder:?} \
         away to resume from what Git has (later writes are then lost)"
    )]
    MovedBack {
        /// The metadata reference.
        reference: String,
        /// The data reference.
        data_reference: String,
        /// What Git has.
        found: Revision,
        /// What the journal continues.
        base: Revision,
        /// The metadata commit of that.
        metadata: Oid,
        /// The local state.
        folder: PathBuf,
    },
    /// The journal does not continue what Git has.
    #[error("journal in {folder:?}: revision {found} follows {expected}; restore the folder from a copy")]
    Gap {
        /// The journal.
        folder: PathBuf,
        /// The last one that was found in order.
        expected: Revision,
        /// What came after it.
        found: Revision,
    },
}

/// A branch that was recovered and is locked by this process.
#[derive(Debug)]
pub struct Opened {
    /// The branch in Git.
    pub branch: Branch,
    /// For [`crate::store::Store::start`].
    pub start: Start,
    /// Pairs in Git from which replay can start, oldest first.
    pub bases: Vec<(Revision, [u8; 20])>,
    /// This life of the local state.
    pub incarnation: Incarnation,
    /// Holds the lock.
    pub lock: StateLock,
}

/// The right to write a branch: a lock that the system drops with the process.
#[derive(Debug)]
pub struct StateLock {
    _files: Vec<File>,
    folder: PathBuf,
}

impl StateLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if another process has it, [`OpenError::Folder`].
    pub fn take(config: &Config) -> Result<Self, OpenError> {
        let folder = state_folder(config);
        make_folder(&folder)?;
        // One lock for the local state, one for each reference: the same branch under another name is the same branch.
        let locks = folder.with_file_name("locks");
        make_folder(&locks)?;
        let of_reference = |name: &str| locks.join(name.replace('%', "%25").replace('/', "%2F"));
        let paths =
            [folder.join("lock"), of_reference(&config.data_reference), of_reference(&config.metadata_reference)];
        let files = paths.iter().map(|path| lock_file(config, path)).collect::<Result<_, _>>()?;
        Ok(Self { _files: files, folder })
    }

    /// Where the branch's local state is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

fn lock_file(config: &Config, path: &Path) -> Result<File, OpenError> {
    let io = |source| OpenError::Folder { path: path.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(io)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked {
            repository: config.repository.clone(),
            reference: config.data_reference.clone(),
            lock: path.to_owned(),
        }),
        Err(error) => Err(io(error.into())),
    }
}

/// Makes a folder and those above it, durably.
fn make_folder(folder: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Folder { path: folder.to_owned(), source };
    let missing: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::create_dir_all(folder).map_err(io)?;
    for made in missing {
        if let Some(parent) = made.parent() {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(io)?;
        }
    }
    Ok(())
}

/// Refuses to serve with other prefixes than before: where a key lives depends on them, and so does what is in Git.
fn check_keys(config: &Config, folder: &Path) -> Result<(), OpenError> {
    let path = folder.join("keys");
    let given = config.keys.to_string();
    match fs::read_to_string(&path) {
        Ok(recorded) if recorded == given => Ok(()),
        Ok(recorded) => Err(OpenError::Keys { path, recorded, given }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(OpenError::Folder { path, source }),
    }
}

/// Records the prefixes of a branch that is about to be served. Not earlier: a start that is refused, perhaps because
/// they are wrong, must not keep the right ones out.
fn record_keys(config: &Config, folder: &Path) -> Result<(), OpenError> {
    let path = folder.join("keys");
    if path.exists() {
        return Ok(());
    }
    let write = || -> io::Result<()> {
        let temporary = folder.join("keys.new");
        let mut file = File::create(&temporary)?;
        io::Write::write_all(&mut file, config.keys.to_string().as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|source| OpenError::Folder { path: path.clone(), source })
}

/// The folder inside the repository that holds a branch's local state.
pub fn state_folder(config: &Config) -> PathBuf {
    git_dir(&config.repository).join("gitcd").join(&config.name)
}

fn git_dir(repository: &Path) -> PathBuf {
    let inner = repository.join(".git");
    if inner.is_dir() { inner } else { repository.to_owned() }
}

/// How a branch begins.
#[derive(Clone, Copy, Debug)]
pub struct Beginning {
    /// The clock of the new branch.
    pub revision: Revision,
    /// The version that adopted keys have.
    pub version: i64,
    /// Make it anew even if it exists: the history in Git stays, revisions start again.
    pub force: bool,
}

/// What [`init`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initialized {
    /// There was nothing.
    Created,
    /// There was history without metadata; its files are keys now.
    Adopted,
    /// It was there already; nothing was changed.
    Present,
}

/// Makes a branch, unless it is there.
///
/// # Errors
/// [`OpenError`].
pub fn init(config: &Config, beginning: Beginning) -> Result<Initialized, OpenError> {
    if !config.repository.exists() {
        fs::create_dir_all(&config.repository)
            .map_err(|source| OpenError::Folder { path: config.repository.clone(), source })?;
    }
    let incarnation: Incarnation = rand::random();
    let state = State {
        revision: beginning.revision.get(),
        compact_revision: 0,
        incarnation: hex(&incarnation),
        leases: Vec::new(),
    };
    let is_repository = git2::Repository::open(&config.repository).is_ok();
    let (branch, done) = if is_repository {
        let lock = StateLock::take(config)?;
        let refs = Refs::open(&git_dir(&config.repository))?;
        let data = refs.read(&config.data_reference)?;
        let metadata = refs.read(&config.metadata_reference)?;
        if metadata.is_some() && !beginning.force {
            return Ok(Initialized::Present);
        }
        let adopt = if beginning.force { Branch::adopt_anew } else { Branch::adopt };
        let made = match data {
            Some(_) => (adopt(config.clone(), &state, beginning.version).map_err(Box::new)?, Initialized::Adopted),
            None => (Branch::create(config.clone(), &state).map_err(Box::new)?, Initialized::Created),
        };
        // Only now: a refusal must leave what is not in Git yet where it was. (A start after a crash in between sees
        // that the local state is of another life.)
        set_aside(lock.folder())?;
        made
    } else {
        (Branch::create(config.clone(), &state).map_err(Box::new)?, Initialized::Created)
    };
    let folder = state_folder(config);
    make_folder(&folder)?;
    // A first segment, so that a journal that is missing later is known to be missing.
    start_journal(&folder.join("journal"), incarnation, 0, 1 << 12, &Arc::default())?;
    first_snapshot(incarnation, beginning.revision, branch.head().metadata).write(&folder)?;
    Ok(done)
}

fn first_snapshot(incarnation: Incarnation, revision: Revision, metadata: Oid) -> Snapshot {
    Snapshot {
        incarnation,
        revision,
        metadata: bytes_of(metadata),
        compacted: Revision::ZERO,
        leases: Vec::new(),
        ephemeral: Vec::new(),
    }
}

/// Takes the lock, completes what a crash left half-done in Git, loads, replays.
///
/// Takes time for all keys of the branch (about 10 µs each) and all writes of the journal (about 1 µs each).
///
/// # Errors
/// [`OpenError`], with nothing changed.
pub fn open(config: &Config, segment_bytes: u64) -> Result<Opened, OpenError> {
    let missing =
        || OpenError::Missing { repository: config.repository.clone(), reference: config.data_reference.clone() };
    // Before the lock, which would leave a folder in whatever this is.
    if branch::is_absent(&config.repository).map_err(Box::new)? {
        return Err(missing());
    }
    let refs = Refs::open(&git_dir(&config.repository))?;
    let lock = StateLock::take(config)?;
    check_keys(config, lock.folder())?;
    refs.release(&config.data_reference)?;
    refs.release(&config.metadata_reference)?;
    let branch = Branch::open(config.clone()).map_err(Box::new)?.ok_or_else(missing)?;
    let opened = match Snapshot::read(lock.folder())? {
        Some(snapshot) if continues(&snapshot, &branch) => resume(config, branch, &snapshot, lock, segment_bytes)?,
        _ => {
            set_aside(lock.folder())?;
            restart(branch, lock, segment_bytes)?
        }
    };
    record_keys(config, opened.lock.folder())?;
    Ok(opened)
}

/// Whether the local state belongs to what is in Git.
fn continues(snapshot: &Snapshot, branch: &Branch) -> bool {
    branch.state().incarnation == hex(&snapshot.incarnation) || bytes_of(branch.head().metadata) == snapshot.metadata
}

/// The usual start: base, snapshot, journal.
fn resume(
    config: &Config,
    branch: Branch,
    snapshot: &Snapshot,
    lock: StateLock,
    segment_bytes: u64,
) -> Result<Opened, OpenError> {
    let started = Instant::now();
    let base = Oid::from_bytes(&snapshot.metadata).expect("an object id has 20 bytes");
    let head = Revision::new(branch.state().revision);
    if head < snapshot.revision {
        // What lies between is no longer in the journal: it could never be committed again.
        return Err(OpenError::MovedBack {
            reference: config.metadata_reference.clone(),
            data_reference: config.data_reference.clone(),
            found: head,
            base: snapshot.revision,
            metadata: base,
            folder: lock.folder().to_owned(),
        });
    }
    let mut replay = Replay::new(config, snapshot);
    for loaded in branch.load(base).map_err(Box::new)?.keys {
        replay.index.load(version_of(loaded));
    }
    let folder = lock.folder().join("journal");
    let recovered = recover(&folder, |record| replay.record(&record))?;
    if let Some((expected, found)) = replay.gap {
        return Err(OpenError::Gap { folder, expected, found });
    }
    if replay.index.revision() < head || recovered.newest == 0 {
        // The journal lost what Git has, or all of it: an older copy of the folder was put back, or none. Git goes on.
        tracing::warn!(
            journal = %replay.index.revision(), git = %head,
            "the journal ends before the last commit: resuming from Git with a new block of revisions"
        );
        set_aside(lock.folder())?;
        return restart(branch, lock, segment_bytes);
    }
    if recovered.torn_bytes > 0 {
        tracing::info!(
            bytes = recovered.torn_bytes,
            "dropped the torn end of the journal; nothing in it was acknowledged"
        );
    }
    let Replay { mut index, leases, mut bases, superseded, .. } = replay;
    bases.insert(0, (snapshot.revision, snapshot.metadata));
    while index.prune(head, 1 << 16) {}
    let evicted = superseded.iter().filter(|version| version.evict(&recovered.segments)).map(Arc::downgrade).collect();
    drop(superseded);
    let journal = start_journal(&folder, snapshot.incarnation, recovered.newest, segment_bytes, &recovered.segments)?;
    tracing::info!(
        revision = %index.revision(), committed = %head, keys = index.len(), elapsed = ?started.elapsed(),
        "branch recovered"
    );
    let start = Start { index, leases, committed: head, journal, segments: recovered.segments, evicted };
    Ok(Opened { branch, start, bases, incarnation: snapshot.incarnation, lock })
}

/// A start without local state: from a clone, a backup, another machine.
fn restart(mut branch: Branch, lock: StateLock, segment_bytes: u64) -> Result<Opened, OpenError> {
    let loaded = branch.load(branch.head().metadata).map_err(Box::new)?;
    let revision = Revision::new(loaded.state.revision + RESERVED_REVISIONS);
    let incarnation: Incarnation = rand::random();
    // Git knows of the jump before anybody is answered: should this local state be lost too, revisions that somebody
    // has seen must not come again.
    let state = State {
        revision: revision.get(),
        compact_revision: revision.get(),
        incarnation: hex(&incarnation),
        leases: loaded.state.leases,
    };
    let metadata = branch.flush(&state)?.pair.metadata;
    let mut snapshot = first_snapshot(incarnation, revision, metadata);
    snapshot.compacted = revision;
    snapshot.leases = state.leases;
    let mut index = Index::new(revision);
    let mut leases = Leases::default();
    for (id, ttl) in &snapshot.leases {
        leases.grant(*id, *ttl, Instant::now());
    }
    for key in loaded.keys {
        index.load(version_of(key));
    }
    index.jump(revision);
    snapshot.write(lock.folder())?;
    let segments = Arc::default();
    let journal = start_journal(&lock.folder().join("journal"), incarnation, 0, segment_bytes, &segments)?;
    tracing::warn!(
        %revision, keys = index.len(),
        "no local state of this branch: resuming from Git; revisions jump ahead, clients list again"
    );
    let bases = vec![(revision, bytes_of(metadata))];
    let start = Start { index, leases, committed: revision, journal, segments, evicted: Vec::new() };
    Ok(Opened { branch, start, bases, incarnation, lock })
}

fn start_journal(
    folder: &Path,
    incarnation: Incarnation,
    newest: u64,
    segment_bytes: u64,
    segments: &Arc<journal::Segments>,
) -> Result<journal::Writer, OpenError> {
    let io = |source| OpenError::Folder { path: folder.to_owned(), source };
    make_folder(folder)?;
    journal::Writer::create(folder, incarnation, newest, segment_bytes, segments.clone()).map_err(io)
}

/// Keeps a local state that does not belong to the branch (any more) for a person to look at.
fn set_aside(folder: &Path) -> Result<(), OpenError> {
    let mark = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    for name in ["journal", "snapshot", "keys"] {
        let from = folder.join(name);
        if from.exists() {
            let to = folder.join(format!("{name}.{mark}.old"));
            fs::rename(&from, &to).map_err(|source| OpenError::Folder { path: from.clone(), source })?;
            tracing::warn!(kept = %to.display(), "local state of another life of this branch was set aside");
        }
    }
    Ok(())
}

struct Replay<'a> {
    config: &'a Config,
    index: Index,
    leases: Leases,
    bases: Vec<(Revision, [u8; 20])>,
    base: Revision,
    /// Ephemeral keys below this revision are in the snapshot.
    ephemeral_below: Revision,
    gap: Option<(Revision, Revision)>,
    /// Old versions; their values leave memory in the end, somebody who asks gets them from the journal.
    superseded: Vec<Arc<Version>>,
}

impl<'a> Replay<'a> {
    fn new(config: &'a Config, snapshot: &Snapshot) -> Self {
        let mut index = Index::new(snapshot.revision);
        index.start_at(snapshot.revision, snapshot.compacted);
        let mut leases = Leases::default();
        let now = Instant::now();
        snapshot.leases.iter().for_each(|(id, ttl)| leases.grant(*id, *ttl, now));
        // A write at the compact revision itself comes from the journal if that starts below: a watch may start there.
        for write in
            snapshot.ephemeral.iter().filter(|write| write.revision < snapshot.compacted.max(snapshot.revision.next()))
        {
            for change in &write.changes {
                let Some(put) = &change.put else { continue };
                let (key, value) = (change.key.clone(), put.value.clone());
                index.load(Version::put(key, write.revision, put.create_revision, put.version, put.lease, value));
            }
        }
        let (base, ephemeral_below) = (snapshot.revision, snapshot.compacted);
        Self { config, index, leases, bases: Vec::new(), base, ephemeral_below, gap: None, superseded: Vec::new() }
    }

    fn record(&mut self, replayed: &Replayed) {
        match &replayed.record {
            Record::Write(write) if write.revision > self.base && self.gap.is_none() => {
                if write.revision != self.index.revision().next() {
                    self.gap = Some((self.index.revision(), write.revision));
                    return;
                }
                self.write(write, replayed);
            }
            Record::Grant { id, ttl } => self.leases.grant(*id, *ttl, Instant::now()),
            Record::Revoke { id } => drop(self.leases.remove(*id)),
            Record::Compact(revision) => self.index.compact(*revision),
            Record::Committed { revision, metadata } if *revision > self.base => {
                self.bases.push((*revision, *metadata));
            }
            Record::Write(_) | Record::Committed { .. } => {}
        }
    }

    fn write(&mut self, write: &Write, replayed: &Replayed) {
        let mut versions = Vec::with_capacity(write.changes.len());
        for change in &write.changes {
            let in_snapshot = write.revision < self.ephemeral_below
                && self.config.keys.placement(&change.key) == Placement::Ephemeral;
            if in_snapshot {
                continue;
            }
            let key = self.index.newest(&change.key).map_or_else(|| change.key.clone(), |version| version.key.clone());
            let version = match &change.put {
                None => Version::tombstone(key, write.revision),
                Some(put) => {
                    let value = put.value.clone();
                    let version = Version::put(key, write.revision, put.create_revision, put.version, put.lease, value);
                    version.set_position(replayed.position(put.value_offset, put.value.len()));
                    version
                }
            };
            versions.push(Arc::new(version));
        }
        let client = (!write.client.is_empty()).then(|| write.client.as_str().into());
        let entry = self.index.apply(versions, write.time_ms, client);
        self.superseded.extend(entry.changes().iter().filter_map(|change| change.previous.clone()));
    }
}

fn version_of(loaded: branch::LoadedKey) -> Version {
    let record = loaded.record;
    Version::put(
        loaded.key,
        Revision::new(record.mod_revision),
        Revision::new(record.create_revision),
        record.version,
        record.lease,
        loaded.value,
    )
}

fn bytes_of(oid: Oid) -> [u8; 20] {
    oid.as_bytes().try_into().expect("an object id has 20 bytes")
}

//! Recovery: from disk to a running store, with lock, Git, snapshot and journal.

mod begin;
mod error;
mod fork;
pub mod import;
mod lock;
mod prefixes;
mod replay;
mod restore;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use git2::Oid;
use gitcd_core::durable;
use gitcd_core::revision::Revision;
use gitcd_journal as journal;
use gitcd_journal::recovery::recover;
use gitcd_repo::branch::{self, Branch, Config, State};
use gitcd_repo::git_dir;
use gitcd_repo::object;
use gitcd_repo::refs::{RefError, Refs};

pub use self::begin::{Beginning, Initialized, init, init_with};
pub use self::error::OpenError;
pub use self::fork::fork;
pub use self::lock::StateLock;
use self::replay::Replay;
pub use self::restore::restore;
use gitcd_mvcc::Start;
use gitcd_mvcc::alarms::Alarms;
use gitcd_mvcc::index::Index;
use gitcd_mvcc::lease::Leases;
use gitcd_mvcc::snapshot::{Incarnation, Snapshot, hex};
use gitcd_mvcc::version::Version;

/// Number of revisions that a branch skips when it resumes without its local state: more than could have been acknowledged and
/// never committed, since the journal is bounded.
pub const RESERVED_REVISIONS: i64 = 1 << 32;

/// A recovered branch, locked by this process.
#[derive(Debug)]
pub struct Opened {
    /// The branch in Git.
    pub branch: Branch,
    /// The input of [`gitcd_mvcc::Store::start`].
    pub start: Start,
    /// Revisions and metadata commits in Git from which replay can start, oldest first.
    pub bases: Vec<(Revision, [u8; 20])>,
    /// The incarnation of the local state.
    pub incarnation: Incarnation,
    /// The lock.
    pub lock: StateLock,
}

/// Returns the folder inside the repository for a branch's local state.
pub fn state_folder(config: &Config) -> PathBuf {
    git_dir(&config.repository).join("gitcd").join(&config.name)
}

fn first_snapshot(incarnation: Incarnation, revision: Revision, metadata: Oid) -> Snapshot {
    Snapshot {
        incarnation,
        revision,
        metadata: object::bytes(metadata),
        compacted: Revision::ZERO,
        leases: Vec::new(),
        ephemeral: Vec::new(),
    }
}

/// Takes the lock, completes what a crash left incomplete in Git, loads, and replays.
///
/// Takes about 10 µs for each key of the branch and 1 µs for each write in the journal.
///
/// # Errors
/// [`OpenError`]; nothing was changed.
pub fn open(config: &Config, segment_bytes: u64) -> Result<Opened, OpenError> {
    open_locked(config, segment_bytes, lock(config)?)
}

/// Takes the lock of a branch in an existing repository.
///
/// # Errors
/// [`OpenError`].
pub fn lock(config: &Config) -> Result<StateLock, OpenError> {
    // Check this before taking the lock, which would create a folder in something else.
    if branch::is_absent(&config.repository).map_err(Box::new)? {
        return Err(missing(config));
    }
    match Refs::open(&git_dir(&config.repository)) {
        Err(RefError::Open { source, .. }) => {
            return Err(Box::new(branch::OpenError::not_a_repository(&config.repository, &source)).into());
        }
        opened => opened?,
    };
    StateLock::take(config)
}

fn missing(config: &Config) -> OpenError {
    OpenError::Missing {
        repository: config.repository.clone(),
        reference: config.data_reference.clone(),
        init: begin::command(config),
    }
}

/// Does the same as [`open`], with a lock that is already held.
///
/// # Errors
/// [`OpenError`]; nothing was changed.
pub fn open_locked(config: &Config, segment_bytes: u64, lock: StateLock) -> Result<Opened, OpenError> {
    let refs = Refs::open(&git_dir(&config.repository))?;
    prefixes::check(config, lock.folder())?;
    if lock.folder().join(restore::RESTORING).exists() {
        return Err(OpenError::HalfRestored {
            repository: config.repository.clone(),
            reference: config.data_reference.clone(),
        });
    }
    if !lock.continues_import() && import::origin(&lock)?.is_some() {
        return Err(OpenError::Importing {
            repository: config.repository.clone(),
            reference: config.data_reference.clone(),
        });
    }
    refs.release(&config.data_reference)?;
    refs.release(&config.metadata_reference)?;
    let branch = match Branch::open(config.clone()) {
        Err(branch::OpenError::OfGo { reference }) => {
            return Err(OpenError::OfGo { reference, init: begin::command(config) });
        }
        opened => opened.map_err(Box::new)?.ok_or_else(|| missing(config))?,
    };
    let opened = match Snapshot::read(lock.folder())? {
        Some(snapshot) if continues(&snapshot, &branch) => resume(config, branch, &snapshot, lock, segment_bytes)?,
        _ => {
            set_aside(lock.folder())?;
            restart(branch, lock, segment_bytes)?
        }
    };
    prefixes::record(config, opened.lock.folder())?;
    Ok(opened)
}

/// Returns whether the local state belongs to the branch in Git.
fn continues(snapshot: &Snapshot, branch: &Branch) -> bool {
    branch.state().incarnation == hex(&snapshot.incarnation)
        || object::bytes(branch.head().metadata) == snapshot.metadata
}

/// The usual start: base commit, snapshot, journal.
fn resume(
    config: &Config,
    branch: Branch,
    snapshot: &Snapshot,
    lock: StateLock,
    segment_bytes: u64,
) -> Result<Opened, OpenError> {
    let started = Instant::now();
    let base = Oid::from_bytes(&snapshot.metadata).expect("an object ID has 20 bytes");
    let head = Revision::new(branch.state().revision);
    if head < snapshot.revision {
        // The journal no longer has the writes in between: they could never be committed again.
        return Err(OpenError::MovedBack {
            reference: config.metadata_reference.clone(),
            data_reference: config.data_reference.clone(),
            found: head,
            base: snapshot.revision,
            metadata: base,
            folder: lock.folder().to_owned(),
        });
    }
    let segments = Arc::default();
    let mut replay = Replay::new(config, snapshot, head, Arc::clone(&segments));
    for loaded in branch.load(base).map_err(Box::new)?.keys {
        replay.index.load(version_of(loaded));
    }
    let folder = lock.folder().join("journal");
    let recovered = recover(&folder, &segments, |record| replay.record(&record))?;
    if let Some((expected, found)) = replay.gap {
        return Err(OpenError::Gap { folder, expected, found });
    }
    if replay.index.revision() < head || recovered.newest == 0 {
        // The journal lacks writes that Git has: the folder is missing or an older copy. Continue from Git.
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
    replay.settle();
    let Replay { index, leases, mut bases, old: superseded, merges, .. } = replay;
    bases.insert(0, (snapshot.revision, snapshot.metadata));
    let journal = start_journal(&folder, snapshot.incarnation, recovered.newest, segment_bytes, &segments)?;
    tracing::info!(
        revision = %index.revision(), committed = %head, keys = index.len(), elapsed = ?started.elapsed(),
        "branch recovered"
    );
    let alarms = read_alarms(&lock)?;
    let start = Start { index, leases, committed: head, journal, segments, superseded, alarms, merges };
    Ok(Opened { branch, start, bases, incarnation: snapshot.incarnation, lock })
}

/// A start without local state, from a clone, a backup or another machine.
fn restart(mut branch: Branch, lock: StateLock, segment_bytes: u64) -> Result<Opened, OpenError> {
    let loaded = branch.load(branch.head().metadata).map_err(Box::new)?;
    let revision = Revision::new(loaded.state.revision + RESERVED_REVISIONS);
    let incarnation: Incarnation = rand::random();
    // Record the jump in Git before any client is answered: if this local state is lost too, revisions that clients have seen
    // must not be reused.
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
        "no local state of this branch: resuming from Git; revisions jump ahead, clients must relist"
    );
    let bases = vec![(revision, object::bytes(metadata))];
    let alarms = read_alarms(&lock)?;
    let (superseded, merges) = (Vec::new(), Vec::new());
    let start = Start { index, leases, committed: revision, journal, segments, superseded, alarms, merges };
    Ok(Opened { branch, start, bases, incarnation, lock })
}

fn read_alarms(lock: &StateLock) -> Result<Alarms, OpenError> {
    Alarms::read(lock.folder()).map_err(|source| OpenError::Folder {
        action: "read",
        path: lock.folder().join("alarms"),
        source,
    })
}

fn start_journal(
    folder: &Path,
    incarnation: Incarnation,
    newest: u64,
    segment_bytes: u64,
    segments: &Arc<journal::Segments>,
) -> Result<journal::Writer, OpenError> {
    durable::make_folder(folder)?;
    Ok(journal::Writer::create(folder, incarnation, newest, segment_bytes, segments.clone())?)
}

/// Moves aside local state that does not belong to the branch (any more), for an operator to inspect.
pub fn set_aside(folder: &Path) -> Result<(), OpenError> {
    const PARTS: [&str; 3] = ["journal", "snapshot", "keys"];
    let mut mark = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let aside = |part: &str, mark: u64| folder.join(format!("{part}.{mark}.old"));
    // Folders of this name were set aside within this second, or with a wrong clock: keep them as well.
    while PARTS.iter().any(|part| aside(part, mark).exists()) {
        mark += 1;
    }
    for part in PARTS {
        let from = folder.join(part);
        if from.exists() {
            let to = aside(part, mark);
            durable::rename(&from, &to)?;
            tracing::warn!(
                kept = %to.display(),
                "local state of another incarnation of this branch was set aside; it is no longer read: delete it once no write is \
                 missing that was acknowledged just before"
            );
        }
    }
    Ok(())
}

/// Returns the version of a key as Git has it.
pub fn version_of(loaded: branch::LoadedKey) -> Version {
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

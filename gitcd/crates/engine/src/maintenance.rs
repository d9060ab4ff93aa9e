//! Background maintenance of repositories: all of it for a served branch, only repacks for those of a Git host.
//!
//! Every flush writes a pack, and each pack makes later reads a little slower. When there are more than Git's own
//! `gc.autoPackLimit`, the small ones become one ([`choose`]), with deltas across all of them ([`join`]): a value or a directory
//! that each pack stored whole becomes a small delta. Then Git's commit-graph is written, which makes `git log` fast.
//!
//! Once a day, unreachable objects are searched; those that were unreachable for a grace period are pruned ([`prune`]).
//!
//! A separate `git` process does the work at low priority; writes never wait for it. `gc.auto = 0` in the repository's
//! configuration turns maintenance off, except on request ([`Maintenance::ask`], `etcdctl defrag`): then all packs become one,
//! and unreachable objects are searched.

mod choose;
pub mod graph;
mod index;
mod join;
mod prune;
mod record;
pub mod retain;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gitcd_core::durable;
use gitcd_core::program::Program;
use gitcd_repo::partial::is_partial;
use rustix::fs::{FlockOperation, Mode, OFlags};
use tokio::sync::{Notify, watch};

use self::choose::Pack;
pub use self::join::JoinError;
use self::join::MaintenancePaths;
use self::prune::PruneScope;
use self::record::Record;

/// How often packs are counted.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Minimum age of packs to repack: a newer one may still be extended by its branch.
const SETTLED: Duration = Duration::from_secs(30);
/// How often unreachable objects are searched.
const PRUNE_EVERY: Duration = Duration::from_hours(24);
/// When they are searched again if the objects were in use.
const PRUNE_AGAIN: Duration = Duration::from_hours(1);
/// Uptime before the first prune of a repository, since a starting process is busy.
const PRUNE_FIRST: Duration = Duration::from_hours(1);
/// Delay before a retry after a failure.
const REST: Duration = Duration::from_mins(10);
/// Git's default of `gc.autoPackLimit`.
const PACK_LIMIT: i64 = 50;
/// The folder for maintenance inside the repository.
const OWN: &str = "gitcd-maintenance";
/// Fewer packs are never worth a repack, whatever the configuration.
const FEW: usize = 10;
/// Git takes a `git gc` that started so long ago for dead.
const GC_LIMIT: Duration = Duration::from_hours(12);
/// Age at which an unfinished file is taken for abandoned.
const ABANDONED: Duration = Duration::from_hours(24);

/// Counters for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Repacks.
    pub joins: AtomicU64,
    /// Failed repacks and prunes.
    pub failures: AtomicU64,
    /// Pruned objects.
    pub pruned: AtomicU64,
    /// Total duration in milliseconds.
    pub milliseconds: AtomicU64,
    /// 1 while maintenance runs.
    pub running: AtomicU64,
}

/// The maintenance of one repository.
#[derive(Debug)]
pub struct Maintenance {
    repository: PathBuf,
    prune_expire: Option<Duration>,
    since: Instant,
    counters: Arc<Counters>,
    /// Notified when a full run is requested.
    asked: Notify,
    rests_until: Mutex<Option<Instant>>,
    /// After a failed prune, there is no other one before this time.
    prunes_after: Mutex<Option<Instant>>,
}

/// Exclusive maintenance of a repository: holds the lock.
struct MaintenanceLock {
    place: MaintenancePaths,
    lock: File,
}

impl Drop for MaintenanceLock {
    fn drop(&mut self) {
        // Unlock explicitly: a process that is just being spawned may have inherited the descriptor for a moment.
        let _ended = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Maintenance {
    /// Creates the maintenance of the repository in this folder, such as `store.git`. Objects that were unreachable for
    /// `prune_expire` are pruned ([`Duration::MAX`]: never); `None` means the repository's `gc.pruneExpire`.
    pub fn new(repository: PathBuf, prune_expire: Option<Duration>) -> Self {
        let (counters, since) = (Arc::default(), Instant::now());
        Self {
            repository,
            prune_expire,
            since,
            counters,
            asked: Notify::new(),
            rests_until: Mutex::default(),
            prunes_after: Mutex::default(),
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Requests a full run soon, in the background: all packs become one, however few they are.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Runs until `stopped` is true.
    pub async fn run(&self, mut stopped: watch::Receiver<bool>) {
        let repository = self.repository.clone();
        let _cleared = tokio::task::spawn_blocking(move || clear(&repository)).await;
        loop {
            let all = tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => false,
                () = self.asked.notified() => true,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            self.round(all, &stopped).await;
            self.prune(all, SystemTime::now(), &stopped).await;
        }
    }

    fn rests(&self) -> bool {
        is_before(&self.rests_until)
    }

    /// Prunes unreachable objects if it is due, or on request (`all`).
    async fn prune(&self, all: bool, now: SystemTime, stopped: &watch::Receiver<bool>) {
        if self.prune_expire == Some(Duration::MAX) || ((self.rests() || is_before(&self.prunes_after)) && !all) {
            return;
        }
        let failed = |error: &JoinError| {
            self.failed(error);
            // Repositories rarely repair themselves.
            self.prune_later(PRUNE_EVERY);
        };
        let (repository, uptime) = (self.repository.clone(), self.since.elapsed());
        let due = tokio::task::spawn_blocking(move || due(&repository, all, uptime, now));
        let turn = match due.await.unwrap_or_else(|_| Ok(None)) {
            Ok(Some(turn)) => turn,
            Ok(None) => return,
            Err(error) => return failed(&error.into()),
        };
        let git = match Program::find().await {
            Ok(git) => git,
            Err(error) => return failed(&JoinError::Run(error)),
        };
        let started = Instant::now();
        let running = Running::of(&self.counters);
        let pruned = async {
            let grace = match self.prune_expire {
                Some(grace) => grace,
                None => prune::grace(&git, &turn.place, stopped).await?,
            };
            prune::prune(&git, &turn.place, PruneScope::Since(grace), now, stopped).await
        };
        let pruned = pruned.await;
        drop(running);
        let took = started.elapsed();
        self.counters.milliseconds.fetch_add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        match pruned {
            Ok(0) | Err(JoinError::Stopped) => {}
            Ok(objects) => {
                self.counters.pruned.fetch_add(objects as u64, Ordering::Relaxed);
                tracing::info!(repository = %self.repository.display(), objects, ?took, "pruned unreachable objects");
            }
            Err(JoinError::Moved) => {
                tracing::debug!("an object to be pruned is referenced again; the next run keeps it");
            }
            Err(error @ JoinError::InUse(_)) => {
                // A slow push ends some time.
                self.prune_later(PRUNE_AGAIN);
                tracing::info!(%error, "pruned nothing");
            }
            Err(error) => failed(&error),
        }
    }

    /// Defers the next search, which takes long, because this one had no success.
    fn prune_later(&self, after: Duration) {
        *self.prunes_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + after);
    }

    async fn round(&self, all: bool, stopped: &watch::Receiver<bool>) {
        if self.rests() && !all {
            return;
        }
        let repository = self.repository.clone();
        let look = tokio::task::spawn_blocking(move || look(&repository, all, SETTLED)).await;
        let (turn, packs) = match look.unwrap_or_else(|_| Ok(None)) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => return self.failed(&error.into()),
        };
        // Only look for `git` when there is work: most repositories are small, and need no other program.
        let git = match Program::find().await {
            Ok(git) => git,
            Err(error) => return self.failed(&JoinError::Run(error)),
        };
        let (started, count) = (Instant::now(), packs.len());
        let running = Running::of(&self.counters);
        let joined = join::join(&git, &turn.place, &packs, stopped).await;
        if joined.is_ok()
            && let Err(error) = join::write_commit_graph(&git, &turn.place, false, stopped).await
        {
            self.failed(&error);
        }
        drop(running);
        let took = started.elapsed();
        self.counters.milliseconds.fetch_add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        match joined {
            Ok(()) => {
                self.counters.joins.fetch_add(1, Ordering::Relaxed);
                tracing::info!(repository = %self.repository.display(), packs = count, ?took, "repacked");
            }
            Err(JoinError::Stopped) => {}
            Err(error) if turn.place.lacks_any(&packs) => {
                tracing::debug!(%error, "a pack was removed during the repack; the next run starts from the packs that exist");
            }
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &JoinError) {
        if matches!(error, JoinError::Stopped) {
            return;
        }
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + REST);
        let repository = self.repository.display();
        tracing::warn!(%repository, %error, again_in = ?REST, "repository maintenance failed; nothing is lost, but reads become slower");
    }
}

/// Repacks the small packs of a repository that is not served as a branch, if there are too many, and returns how many. There is
/// no minimum age: packs on a Git host are never extended.
///
/// # Errors
/// [`JoinError`]; the packs are unchanged.
pub async fn join_pushed(
    git: &Program,
    repository: &Path,
    stopped: &watch::Receiver<bool>,
) -> Result<Option<usize>, JoinError> {
    let folder = repository.to_owned();
    let looked = tokio::task::spawn_blocking(move || look(&folder, false, Duration::ZERO)).await;
    let Some((turn, packs)) = looked.unwrap_or_else(|_| Ok(None))? else { return Ok(None) };
    match join::join(git, &turn.place, &packs, stopped).await {
        Ok(()) => Ok(Some(packs.len())),
        Err(JoinError::Stopped) => Ok(None),
        // The next push retries with the packs that are left.
        Err(_) if turn.place.lacks_any(&packs) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether a time is set and in the future.
fn is_before(until: &Mutex<Option<Instant>>) -> bool {
    until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
}

/// Sets `running` in the metrics until dropped.
struct Running(Arc<Counters>);

impl Running {
    fn of(counters: &Arc<Counters>) -> Self {
        counters.running.store(1, Ordering::Relaxed);
        Self(counters.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.store(0, Ordering::Relaxed);
    }
}

/// Takes the lock and returns the packs to repack, if there are any and no other process runs maintenance. Packs must be older
/// than `settled`.
fn look(
    repository: &Path,
    all: bool,
    settled: Duration,
) -> Result<Option<(MaintenanceLock, Vec<Pack>)>, durable::Error> {
    let folder = repository.join("objects/pack");
    let mut packs = choose::ordinary(&folder, SystemTime::now(), settled);
    if !all {
        let Some(limit) = limit(repository) else { return Ok(None) };
        if packs.len() <= limit.max(FEW) {
            return Ok(None);
        }
        packs = choose::geometric(packs);
    }
    if packs.len() < 2 || is_being_collected(repository, SystemTime::now()) {
        return Ok(None);
    }
    let Some(turn) = MaintenanceLock::take(repository)? else { return Ok(None) };
    sweep(&folder);
    Ok(Some((turn, packs)))
}

/// Takes the lock for a prune, if one is due and no other process runs maintenance.
fn due(
    repository: &Path,
    all: bool,
    uptime: Duration,
    now: SystemTime,
) -> Result<Option<MaintenanceLock>, durable::Error> {
    let is_time = || match Record::looked(repository) {
        // A clock that was set back does not prevent a prune.
        Some(looked) => now.duration_since(looked).map_or(true, |age| age >= PRUNE_EVERY),
        None => uptime >= PRUNE_FIRST,
    };
    let is_wanted = all || (limit(repository).is_some() && is_time());
    if !is_wanted || is_partial(repository) || is_being_collected(repository, now) {
        return Ok(None);
    }
    MaintenanceLock::take(repository)
}

/// Removes what a killed process left, unless maintenance is running.
pub fn clear(repository: &Path) -> Result<(), durable::Error> {
    if !repository.join(OWN).is_dir() {
        return Ok(());
    }
    match MaintenanceLock::take(repository)? {
        Some(turn) => turn.place.clear(),
        None => Ok(()),
    }
}

impl MaintenanceLock {
    /// Takes the lock; `None` if another process holds it.
    fn take(repository: &Path) -> Result<Option<Self>, durable::Error> {
        let (own, owner) = (repository.join(OWN), owner(repository));
        match owner {
            Some(owner) if !own.is_dir() => make_folders(repository, owner)?,
            _ => durable::make_folder(&own)?,
        }
        let path = own.join("lock");
        let failed = |source| durable::Error::of("lock", &path)(source);
        let lock = open_lock(&path, owner).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        }
        let place = MaintenancePaths { repository: repository.to_owned(), draft: own.join("objects") };
        Ok(Some(Self { place, lock }))
    }
}

/// Returns the user and the group that own the repository, if this process is root: a server of that user needs the folder for
/// maintenance, too.
fn owner(repository: &Path) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let head = std::fs::metadata(repository.join("HEAD")).ok()?;
    Some((head.uid(), head.gid()))
}

/// Creates the folder for maintenance, with the folders in it, which only this owner can access. Some file systems have no owners.
fn make_folders(repository: &Path, (user, group): (u32, u32)) -> Result<(), durable::Error> {
    durable::make_folder(&repository.join(OWN).join("objects/pack"))?;
    let give = || -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = rustix::fs::open(repository, flags, Mode::empty())?;
        for name in [OWN, "objects", "pack"] {
            // Nothing that a symbolic link leads to gets another owner.
            folder = rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
            fchown(&folder, Some(user), Some(group))?;
        }
        Ok(())
    };
    if let Err(error) = give() {
        tracing::debug!(repository = %repository.display(), %error, "the owner of the folder for maintenance is not changed");
    }
    Ok(())
}

/// Opens the file to lock. Creates it for this owner if it does not exist.
fn open_lock(path: &Path, owner: Option<(u32, u32)>) -> io::Result<File> {
    match File::options().write(true).create_new(true).mode(durable::PRIVATE_FILE).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::options().write(true).open(path),
        Err(error) => Err(error),
        Ok(lock) => {
            if let Some((user, group)) = owner
                && let Err(error) = fchown(&lock, Some(user), Some(group))
            {
                tracing::debug!(path = %path.display(), %error, "the owner is not changed");
            }
            Ok(lock)
        }
    }
}

/// Returns how many packs may exist; `None` if automatic maintenance is disabled.
fn limit(repository: &Path) -> Option<usize> {
    let config = git2::Config::open(&repository.join("config")).ok()?;
    let is_on = config.get_i64("gc.auto").unwrap_or(1) > 0;
    let limit = config.get_i64("gc.autopacklimit").unwrap_or(PACK_LIMIT);
    usize::try_from(limit).ok().filter(|limit| is_on && *limit > 0)
}

/// Returns whether `git gc` is running.
fn is_being_collected(repository: &Path, now: SystemTime) -> bool {
    let began = repository.join("gc.pid").metadata().and_then(|metadata| metadata.modified());
    began.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < GC_LIMIT))
}

/// Removes unfinished files of killed programs. Git itself removes them only in `git prune`, and some not even then.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_unfinished = [".tmp-", "tmp_"].iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()));
        let modified = || entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let is_old = || modified().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED);
        if is_unfinished && is_old() {
            match std::fs::remove_file(entry.path()) {
                Ok(()) => tracing::info!(file = %entry.path().display(), "removed an unfinished file"),
                Err(error) => tracing::debug!(file = %entry.path().display(), %error, "cannot remove an old file"),
            }
        }
    }
}

#[cfg(test)]
mod tests;

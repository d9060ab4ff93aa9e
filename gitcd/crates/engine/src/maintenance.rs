//! Keeps repositories in order, in the background: that of a served branch, and, as far as packs are joined, those of a Git host.
//!
//! Every flush brings a pack, and each makes what is read later a little slower. When there are more than Git's own `gc.autoPackLimit`, the small ones become
//! one ([`choose`]), with deltas across all of them ([`join`]): a value or a directory that was whole at the beginning of each pack becomes a small change. Then Git's
//! commit-graph is written, which makes `git log` quick.
//!
//! Once a day it is looked for what nothing leads to; what has been so for a grace period is thrown away ([`prune`]).
//!
//! `git` does the work in a process of its own that comes after everybody else; writes never wait for it. `gc.auto = 0` in the repository's configuration turns it off, but
//! for what somebody asks for ([`Maintenance::ask`], `etcdctl defrag`): then all packs become one, and it is looked for what nothing leads to.

mod choose;
pub mod graph;
mod index;
mod join;
mod prune;
mod record;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use gitcd_core::durable;
use gitcd_core::program::Program;
use rustix::fs::FlockOperation;
use tokio::sync::{Notify, watch};

use self::choose::Pack;
pub use self::join::JoinError;
use self::join::Place;
use self::record::Record;

/// How often the packs are counted.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A pack that was written a moment ago may be the one that its branch goes on with.
const SETTLED: Duration = Duration::from_secs(30);
/// How often it is looked for what nothing leads to.
const PRUNE_EVERY: Duration = Duration::from_hours(24);
/// A repository that was never looked at is left in peace for so long: whoever starts has other things to do.
const PRUNE_FIRST: Duration = Duration::from_hours(1);
/// After a failure the repository is left alone for so long.
const REST: Duration = Duration::from_mins(10);
/// `gc.autoPackLimit`, unless the repository says otherwise: Git's own default.
const PACK_LIMIT: i64 = 50;
/// What is kept for it in the repository's folder.
const OWN: &str = "gitcd-maintenance";
/// Fewer are never worth it, whatever is configured.
const FEW: usize = 10;
/// A `git gc` that began so long ago is not running any more, as Git itself sees it.
const GC_LIMIT: Duration = Duration::from_hours(12);
/// A file that nobody has written to for so long nobody will finish.
const ABANDONED: Duration = Duration::from_hours(24);

/// Figures for metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// How often packs were joined.
    pub joins: AtomicU64,
    /// How often that, or throwing away what nothing leads to, failed.
    pub failures: AtomicU64,
    /// How many objects were thrown away.
    pub pruned: AtomicU64,
    /// How long it took in all, in milliseconds.
    pub milliseconds: AtomicU64,
    /// Whether it is being done.
    pub running: AtomicU64,
}

/// Keeps one repository in order.
#[derive(Debug)]
pub struct Maintenance {
    repository: PathBuf,
    prune_expire: Option<Duration>,
    since: Instant,
    counters: Arc<Counters>,
    /// Somebody wants it now, and all of it.
    asked: Notify,
    rests_until: Mutex<Option<Instant>>,
    /// Before that it is not looked again for what nothing leads to, after that has failed.
    prunes_after: Mutex<Option<Instant>>,
}

/// Nobody else keeps the repository in order as long as this is there.
struct Turn {
    place: Place,
    lock: File,
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Not only closed: a process that is just being started may have it, too, for a moment.
        let _ended = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Maintenance {
    /// Of the repository with this folder, such as `store.git`. What nothing has led to for `prune_expire` is thrown away ([`Duration::MAX`]:
    /// never); without it the repository's `gc.pruneExpire` says when.
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

    /// What was done so far.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Makes one pack of all soon, in the background, however few they are.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Works until `stopped` is true.
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

    /// Throws away what nothing leads to, if it is time to look for it; or in any case if somebody wants `all` of it.
    async fn prune(&self, all: bool, now: SystemTime, stopped: &watch::Receiver<bool>) {
        if self.prune_expire == Some(Duration::MAX) || ((self.rests() || is_before(&self.prunes_after)) && !all) {
            return;
        }
        let failed = |error: &JoinError| {
            self.failed(error);
            // It takes long, and what is wrong with a repository stays so, mostly.
            *self.prunes_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PRUNE_EVERY);
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
            prune::prune(&git, &turn.place, grace, now, stopped).await
        };
        let pruned = pruned.await;
        drop(running);
        let took = started.elapsed();
        self.counters.milliseconds.fetch_add(u64::try_from(took.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        match pruned {
            Ok(0) | Err(JoinError::Stopped) => {}
            Ok(objects) => {
                self.counters.pruned.fetch_add(objects as u64, Ordering::Relaxed);
                tracing::info!(repository = %self.repository.display(), objects, ?took, "threw away what nothing leads to");
            }
            Err(JoinError::Moved) => {
                tracing::debug!("an object to be pruned is referenced again; the next run keeps it");
            }
            Err(error) => failed(&error),
        }
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
        // Not before there is something to do: most repositories are small, and no other program is needed for them.
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
                tracing::info!(repository = %self.repository.display(), packs = count, ?took, "joined packs");
            }
            Err(JoinError::Stopped) => {}
            Err(error) if turn.place.lacks_any(&packs) => {
                tracing::debug!(%error, "a pack went while it was to be joined; the next round does not know it");
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
        tracing::warn!(%repository, %error, again_in = ?REST, "cannot keep the repository in order; nothing is lost, but reading becomes slower");
    }
}

/// Joins the small packs of a repository that nobody serves as a branch, if they are too many for it; tells how many were joined. All
/// packs count that no push is about to refer to: whoever pushes next brings a pack of its own.
///
/// # Errors
/// [`JoinError`]; the packs are as they were.
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
        // The next push finds the others.
        Err(_) if turn.place.lacks_any(&packs) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a time was set that has not come yet.
fn is_before(until: &Mutex<Option<Instant>>) -> bool {
    until.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
}

/// It is being done, until this is dropped.
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

/// What is to be done, if there is something, and nobody else does it. Packs count that are older than `settled`.
fn look(repository: &Path, all: bool, settled: Duration) -> Result<Option<(Turn, Vec<Pack>)>, durable::Error> {
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
    let Some(turn) = Turn::take(repository)? else { return Ok(None) };
    sweep(&folder);
    Ok(Some((turn, packs)))
}

/// The turn to look for what nothing leads to, if it is time for it, and nobody else does it.
fn due(repository: &Path, all: bool, uptime: Duration, now: SystemTime) -> Result<Option<Turn>, durable::Error> {
    let is_time = || match Record::looked(repository) {
        // A clock that was set back keeps nobody from looking.
        Some(looked) => now.duration_since(looked).map_or(true, |age| age >= PRUNE_EVERY),
        None => uptime >= PRUNE_FIRST,
    };
    let is_wanted = all || (limit(repository).is_some() && is_time());
    if !is_wanted || is_partial(repository) || is_being_collected(repository, now) {
        return Ok(None);
    }
    Turn::take(repository)
}

/// Whether the repository gets the rest of its objects when it needs them: then nobody can say what leads where.
fn is_partial(repository: &Path) -> bool {
    let config = git2::Config::open(&repository.join("config"));
    config.is_ok_and(|config| config.get_entry("extensions.partialclone").is_ok())
}

/// Removes what was left by a process that was killed, unless another one is at it.
pub fn clear(repository: &Path) -> Result<(), durable::Error> {
    if !repository.join(OWN).is_dir() {
        return Ok(());
    }
    match Turn::take(repository)? {
        Some(turn) => turn.place.clear(),
        None => Ok(()),
    }
}

impl Turn {
    /// `None` if somebody else has it.
    fn take(repository: &Path) -> Result<Option<Self>, durable::Error> {
        let own = repository.join(OWN);
        durable::make_folder(&own)?;
        let path = own.join("lock");
        let failed = |source| durable::Error::of("lock", &path)(source);
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        }
        let place = Place { repository: repository.to_owned(), draft: own.join("objects") };
        Ok(Some(Self { place, lock }))
    }
}

/// How many packs may be there; `None` if the repository is to be left alone.
fn limit(repository: &Path) -> Option<usize> {
    let config = git2::Config::open(&repository.join("config")).ok()?;
    let is_on = config.get_i64("gc.auto").unwrap_or(1) > 0;
    let limit = config.get_i64("gc.autopacklimit").unwrap_or(PACK_LIMIT);
    usize::try_from(limit).ok().filter(|limit| is_on && *limit > 0)
}

/// Whether somebody runs `git gc`.
fn is_being_collected(repository: &Path, now: SystemTime) -> bool {
    let began = repository.join("gc.pid").metadata().and_then(|metadata| metadata.modified());
    began.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < GC_LIMIT))
}

/// Removes what a program that was killed has not finished. Git itself removes such files only when somebody runs `git prune`, and some of
/// them not even then.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_unfinished = [".tmp-", "tmp_"].iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes()));
        let modified = || entry.metadata().and_then(|metadata| metadata.modified()).ok();
        let is_old = || modified().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > ABANDONED);
        if is_unfinished && is_old() {
            match std::fs::remove_file(entry.path()) {
                Ok(()) => tracing::info!(file = %entry.path().display(), "removed what a killed program has left"),
                Err(error) => tracing::debug!(file = %entry.path().display(), %error, "cannot remove an old file"),
            }
        }
    }
}

#[cfg(test)]
mod tests;

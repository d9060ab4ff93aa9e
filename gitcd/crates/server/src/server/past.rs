//! Serves a moment of a branch, read only.
//!
//! The moment is forked into a temporary folder (`docs/design/git.md`, *Forks*) and loaded into a store that never changes.
//! Nothing is written into the repository of the branch, and no task follows it. Its objects are marked as being read.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use gitcd_core::blocking;
use gitcd_core::revision::Revision;
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::committer::Head;
use gitcd_engine::maintenance::Maintenance;
use gitcd_engine::recovery;
use gitcd_history::moment::Moment;
use gitcd_history::when::When;
use gitcd_history::{History, HistoryError};
use gitcd_mvcc::Store;
use gitcd_mvcc::snapshot::hex;
use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::branch::{self, Branch, ForkError, ForkObjects, Loaded};
use gitcd_repo::git_dir;
use gitcd_repo::reader::LoadError;
use gitcd_sync::{self, MergeError, Merger, Puller};
use tokio::sync::watch;

use super::frontend::Frontend;
use super::scratch::{self, ScratchError, ScratchFolder};
use super::{Backing, Config, ServeError, Server, bind, requested, tasks};
use crate::status::Reporter;

/// Start of the names of the temporary folders.
const PREFIX: &str = "gitcd-past-";

/// A moment to serve instead of the present.
#[derive(Clone, Copy, Debug)]
pub struct PastMoment {
    /// The moment.
    pub when: When,
    /// Derive the key prefix from the keys, instead of taking that of the branch's configuration.
    pub find_prefix: bool,
}

/// Why a moment of a branch cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// The history does not have it.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// There is no temporary folder.
    #[error(transparent)]
    Folder(#[from] ScratchError),
    /// It cannot be forked.
    #[error(transparent)]
    Fork(#[from] Box<ForkError>),
    /// The fork cannot be read.
    #[error(transparent)]
    Read(#[from] LoadError),
    /// What reports its status cannot be set up.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

/// A moment of a branch, as a branch of its own.
struct LoadedMoment {
    folder: ScratchFolder,
    in_use: ObjectsInUse,
    branch: branch::Config,
    store: Arc<Store>,
    merger: Merger,
    _heads: watch::Sender<Head>,
}

/// Loads the moment and serves it, unless `stopped` becomes true before.
pub(super) async fn start(
    config: Config,
    moment: PastMoment,
    mut stopped: watch::Receiver<bool>,
) -> Result<Server, ServeError> {
    let supervisor = Supervisor::within(&config.process);
    let (_, listeners, pages) = bind(&config).await?;
    let is_stopped = Arc::new(AtomicBool::new(false));
    let mut loading = Box::pin(blocking::run("load the past", {
        let (branch, is_stopped) = (config.branch.clone(), is_stopped.clone());
        move || load(&branch, moment, is_stopped).map_err(Box::new)
    }));
    let loaded = tokio::select! {
        loaded = &mut loading => loaded,
        () = requested(&mut stopped) => {
            is_stopped.store(true, Ordering::Relaxed);
            // Its temporary folder must be removed before the process exits.
            drop(loading.await);
            return Err(ServeError::Stopped);
        }
    };
    let LoadedMoment { folder, in_use, branch, store, merger, _heads } = loaded??;
    let config = Config { branch, ..config };
    let addresses: Vec<_> = listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect();
    let (stop, stopped) = watch::channel(false);
    let puller = Arc::new(Puller::new(Arc::new(merger), gitcd_sync::Config::default()));
    let maintenance = Arc::new(Maintenance::new(git_dir(&config.branch.repository), config.prune_expire));
    let reporter = Reporter::new(puller.clone(), None, supervisor.clone());
    let face = Frontend::new(&config, (&store, None), &addresses, &maintenance, Arc::default(), reporter);
    let with = (config.transport, None, &store);
    let listeners = tasks::listen((listeners, pages), &face, with, &supervisor, &stopped)?;
    Ok(Server {
        store,
        backing: Backing::Past { _folder: folder, _in_use: in_use },
        listeners,
        addresses,
        stop,
        aborted: Vec::new(),
        finishing: Vec::new(),
        puller,
        lease: None,
    })
}

/// Forks the moment into a temporary folder, and loads it. Blocks: takes about 12 µs for each key.
fn load(origin: &branch::Config, past: PastMoment, is_stopped: Arc<AtomicBool>) -> Result<LoadedMoment, PastError> {
    scratch::remove_leftovers(PREFIX);
    let origin_dir = git_dir(&origin.repository);
    let in_use = ObjectsInUse::all(&origin_dir);
    let history = History::open(origin.clone(), past.find_prefix)?;
    let history = history.stopped_by(move || is_stopped.load(Ordering::Relaxed));
    let moment = history.at(past.when)?;
    let point = history.fork_point(&moment)?;
    let folder = ScratchFolder::create(PREFIX)?;
    let branch = config(origin, &history, folder.path());
    // Nothing resumes from this fork.
    let forked = Branch::fork(branch.clone(), &origin_dir, ForkObjects::Shared, point, hex(&[0; 16]));
    let forked = forked.map_err(Box::new)?;
    let Loaded { state, keys } = forked.load(forked.head().metadata)?;
    let revision = Revision::new(state.revision);
    let shown = described(&moment, revision);
    let store = Store::past(keys.into_iter().map(recovery::version_of), &state.leases, revision, shown);
    let data = forked.head().data;
    let (heads, head) = watch::channel(Head { revision, data, next: data, merges: 0, foreign: None });
    let merger = Merger::new(store.clone(), head, branch.clone())?;
    log(past.when, &moment, revision);
    Ok(LoadedMoment { folder, in_use, branch, store, merger, _heads: heads })
}

/// Returns the configuration of the fork: that of the branch, in another repository.
fn config(origin: &branch::Config, history: &History, folder: &Path) -> branch::Config {
    branch::Config { repository: folder.join("repo.git"), keys: history.keys().clone(), ..origin.clone() }
}

/// Describes a moment for people: its revision, and the time of its commit.
fn described(moment: &Moment, revision: Revision) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(moment.commit.time).unwrap_or_default());
    format!("revision {revision}, {}", humantime::format_rfc3339_seconds(time))
}

fn log(when: When, moment: &Moment, revision: Revision) {
    tracing::info!(moment = described(moment, revision), commit = %moment.commit.oid, "serving the past, read only");
    if let When::Revision(asked) = when
        && asked != revision.get()
    {
        tracing::warn!("revision {asked} has no data commit of its own; this is the state of revision {revision}");
    }
}

//! Hot standby: serves what the writer of a branch has pushed, while waiting for its lease.
//!
//! Clients see the writer's own revisions, as of its last push. Requests other than reads and watches are refused. When the
//! lease is acquired, all connections are closed before the first write is accepted. The sockets stay open, so that clients
//! that reconnect in between are not refused; they find history compacted beyond what they have seen, and list again.

use std::net::SocketAddr;
use std::sync::Arc;

use git2::Oid;
use gitcd_core::blocking;
use gitcd_core::error::chain;
use gitcd_core::revision::Revision;
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::committer::Head;
use gitcd_engine::maintenance::{self, Maintenance};
use gitcd_engine::recovery::{self, Opened, StateLock};
use gitcd_mvcc::Store;
use gitcd_mvcc::standby::{Another, Followed};
use gitcd_net::listener::{Bound, Ports, SharedSocket, Socket};
use gitcd_repo::branch::{self, Loaded};
use gitcd_repo::follow::{Follower, Step};
use gitcd_sync::lease::{self, Acquisition, Attempts, Lease, Settings};
use gitcd_sync::{self, Merger, Puller};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::frontend::{Frontend, serve, show};
use super::{Config, ServeError};
use crate::status::Reporter;

/// The key, relative to its prefix, that kube-apiserver reads to check the health of its store.
const HEALTH: &[u8] = b"health";

/// A branch that is about to be served: recovered, with its lease if it has one, and its sockets.
pub(super) struct Turn {
    pub(super) opened: Opened,
    pub(super) lease: Option<Arc<Lease>>,
    pub(super) listeners: Vec<Bound>,
    pub(super) pages: Vec<Bound>,
}

/// Waits for the lease and recovers the branch. No client is served any more when this returns. `attempts` receives the
/// lease; the caller withdraws them if the branch is not served.
pub(super) async fn wait(
    config: &Config,
    settings: &Settings,
    (ports, pages): (&Ports, Vec<Bound>),
    supervisor: &Supervisor,
    attempts: &Arc<Attempts>,
) -> Result<Turn, ServeError> {
    let (pushed, updates) = watch::channel(None);
    let mut standby = Standby::new(config, ports, pages)?;
    let opening = async {
        // The lock first: its holder is the only server of the branch on this machine.
        let lock = lock(config.branch.clone()).await?;
        let acquisition = Acquisition {
            lock,
            segment_bytes: config.journal_segment_bytes,
            pushed: settings.hot_standby.then_some(pushed),
            supervisor: supervisor.clone(),
            attempts: attempts.clone(),
        };
        let (lease, own) = Lease::take(settings, &config.branch, acquisition).await?;
        let opened = lease::takeover::open(&lease, config.journal_segment_bytes, own).await?;
        Ok::<_, ServeError>((opened, lease))
    };
    let (opened, lease) = tokio::select! {
        opened = Box::pin(opening) => opened?,
        never = standby.run(updates), if settings.hot_standby => match never {},
    };
    let (listeners, pages) = standby.end()?;
    let listeners = if listeners.is_empty() { ports.bind().await? } else { listeners };
    Ok(Turn { opened, lease: Some(lease), listeners, pages })
}

/// Takes the lock of the branch.
async fn lock(branch: branch::Config) -> Result<StateLock, ServeError> {
    let lock = blocking::run("lock the branch", move || {
        let lock = recovery::lock(&branch).map_err(Box::new)?;
        maintenance::graph::mend(&gitcd_repo::git_dir(&branch.repository));
        Ok::<_, Box<recovery::OpenError>>(lock)
    });
    Ok(lock.await??)
}

/// A waiting server, with its sockets.
#[derive(Debug)]
pub(super) struct Standby<'c> {
    config: &'c Config,
    ports: &'c Ports,
    /// Empty until there is a state to serve.
    listeners: Vec<Socket>,
    pages: Vec<Socket>,
    /// The newest revision that clients may have seen.
    shown: Revision,
}

/// The state that is being served.
struct View {
    follower: Option<Follower>,
    incarnation: String,
    store: Arc<Store>,
    heads: watch::Sender<Head>,
    /// Accept connections; aborted when this is dropped.
    tasks: JoinSet<()>,
    /// Keeps the tasks' stop channel open.
    _stop: watch::Sender<bool>,
}

impl<'c> Standby<'c> {
    pub(super) fn new(config: &'c Config, ports: &'c Ports, pages: Vec<Bound>) -> Result<Self, ServeError> {
        let pages = pages.into_iter().map(Socket::new).collect::<Result<_, _>>().map_err(ServeError::Socket)?;
        Ok(Self { config, ports, listeners: Vec::new(), pages, shown: Revision::ZERO })
    }

    /// Serves each state that `pushed` announces, until dropped.
    pub(super) async fn run(&mut self, mut pushed: watch::Receiver<Option<Oid>>) -> std::convert::Infallible {
        let mut view: Option<View> = None;
        loop {
            if pushed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let Some(metadata) = *pushed.borrow_and_update() else { continue };
            if let Some(seen) = &mut view {
                match seen.advance(self.config, metadata).await {
                    Ok(Ok(revision)) => {
                        self.shown = revision;
                        continue;
                    }
                    Ok(Err(Another)) => {
                        tracing::info!("another writer has started: clients of this standby must list again");
                        seen.store.end();
                        view = None;
                    }
                    Err(error) => {
                        tracing::warn!(error, "cannot load a pushed commit; the next push is loaded");
                        continue;
                    }
                }
            }
            match self.begin(metadata).await {
                Ok(begun) => view = begun,
                Err(error) => {
                    tracing::warn!(
                        error,
                        "cannot check the pushed commit while waiting for the lease; the next push is checked"
                    );
                }
            }
        }
    }

    /// Returns the sockets for the writer: those for clients, if bound already, and those for pages.
    pub(super) fn end(self) -> Result<(Vec<Bound>, Vec<Bound>), ServeError> {
        let all = |kept: Vec<Socket>| kept.iter().map(Socket::bound).collect::<Result<Vec<_>, _>>();
        Ok((all(self.listeners).map_err(ServeError::Socket)?, all(self.pages).map_err(ServeError::Socket)?))
    }

    async fn begin(&mut self, metadata: Oid) -> Result<Option<View>, String> {
        let branch = self.config.branch.clone();
        let loaded = blocking::run("load a pushed commit", move || LoadedCommit::load(branch, metadata)).await;
        let shown = loaded.map_err(|error| error.to_string())??;
        let revision = shown.revision;
        if revision < self.shown {
            // Clients that have seen more would get different data for the same revisions.
            self.listeners.clear();
            return Err(format!("the branch was reset to the older revision {revision}"));
        }
        if self.listeners.is_empty() {
            let bound = self.ports.bind().await.map_err(|error| chain(&error))?;
            let kept = bound.into_iter().map(Socket::new).collect::<Result<_, _>>();
            self.listeners = kept.map_err(|error| error.to_string())?;
        }
        let view = View::start(self, shown).map_err(|error| chain(&error))?;
        self.shown = revision;
        tracing::info!(%revision, "hot standby: serving reads and watches from the commits that the writer has pushed");
        Ok(Some(view))
    }
}

/// The state of a branch at a pushed commit.
struct LoadedCommit {
    follower: Follower,
    incarnation: String,
    revision: Revision,
    store: Arc<Store>,
    heads: watch::Sender<Head>,
    merger: Merger,
}

impl LoadedCommit {
    /// Loads the state. Blocks: reads all keys.
    fn load(branch: branch::Config, metadata: Oid) -> Result<Self, String> {
        let (follower, Loaded { state, keys }, data) =
            Follower::open(branch.clone(), metadata).map_err(|error| chain(&error))?;
        let revision = Revision::new(state.revision);
        let health = branch.keys.absolute(HEALTH).into();
        let store = Store::standby(keys.into_iter().map(recovery::version_of), revision, health);
        let (heads, head) = watch::channel(Head { revision, data, next: data, merges: 0, foreign: None });
        let merger = Merger::new(store.clone(), head, branch).map_err(|error| chain(&error))?;
        Ok(Self { follower, incarnation: state.incarnation, revision, store, heads, merger })
    }
}

impl View {
    fn start(standby: &Standby<'_>, shown: LoadedCommit) -> Result<Self, ServeError> {
        let LoadedCommit { follower, incarnation, revision: _, store, heads, merger } = shown;
        let Standby { config, .. } = standby;
        let bound = |kept: &[Socket]| kept.iter().map(Socket::bound).collect::<Result<Vec<_>, _>>();
        let (listeners, pages) = (bound(&standby.listeners), bound(&standby.pages));
        let (listeners, pages) = (listeners.map_err(ServeError::Socket)?, pages.map_err(ServeError::Socket)?);
        let addresses: Vec<SocketAddr> =
            listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect();
        // Without remotes: pushed commits arrive through the wait for the lease.
        let puller = Arc::new(Puller::new(Arc::new(merger), gitcd_sync::Config::default()));
        let maintenance =
            Arc::new(Maintenance::new(gitcd_repo::git_dir(&config.branch.repository), config.prune_expire));
        let supervisor = Supervisor::within(&config.process);
        let reporter = Reporter::new(puller, None, supervisor.clone());
        let face = Frontend::new(config, (&store, None), &addresses, &maintenance, Arc::default(), reporter);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for bound in listeners {
            let (with, store, stopped) = ((config.transport, None), store.clone(), stopped.clone());
            tasks.spawn(serve((bound, face.source.network.clone()), with, face.front.clone(), store, stopped));
        }
        for bound in pages {
            let socket = SharedSocket::new(bound).map_err(ServeError::Socket)?;
            let on = (socket, face.source.network.clone(), config.transport.connections);
            tasks.spawn(show(&supervisor, on, face.pages(), stopped.clone()));
        }
        Ok(Self { follower: Some(follower), incarnation, store, heads, tasks, _stop: stop })
    }

    /// Serves a later state of the branch; returns its revision. After a panic, the next state is loaded as that of another
    /// writer.
    async fn advance(&mut self, config: &Config, metadata: Oid) -> Result<Result<Revision, Another>, String> {
        let Some(mut follower) = self.follower.take() else { return Ok(Err(Another)) };
        let (store, incarnation) = (self.store.clone(), self.incarnation.clone());
        let advanced = blocking::run("load the next pushed commit", move || {
            let step = follower.advance(metadata).map(|step| follow(&store, &incarnation, step));
            (follower, step)
        });
        let (follower, step) = advanced.await.map_err(|error| error.to_string())?;
        self.follower = Some(follower);
        let shown = step.map_err(|error| chain(&error))?;
        if let Ok((revision, data)) = shown {
            self.heads.send_modify(|head| *head = Head { revision, data, next: data, ..*head });
            tracing::debug!(%revision, branch = config.branch.name, listeners = self.tasks.len(), "serving new state");
        }
        Ok(shown.map(|(revision, _)| revision))
    }
}

/// Applies a step of the writer to the store; returns the revision and the data commit.
fn follow(store: &Store, incarnation: &str, step: Step) -> Result<(Revision, Oid), Another> {
    let Step { state, data, put, gone } = step;
    if state.incarnation != incarnation {
        return Err(Another);
    }
    let (revision, compacted) = (Revision::new(state.revision), Revision::new(state.compact_revision));
    let put = put.into_iter().map(recovery::version_of).collect();
    store.follow(Followed { revision, compacted, put, gone })?;
    Ok((revision, data))
}

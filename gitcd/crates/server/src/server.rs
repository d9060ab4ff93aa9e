//! The server of a branch: recovery, store, committer, listeners, and their orderly shutdown.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gitcd_core::blocking::{self, Panicked};
use gitcd_core::supervisor::{Supervisor, fail_point};
use gitcd_engine::committer;
use gitcd_engine::compactor::Retention;
use gitcd_engine::maintenance::{self, Maintenance};
use gitcd_engine::recovery::{self, OpenError, Opened, StateLock};
use gitcd_mvcc::{self as store, Store};
use gitcd_net::listener::{Bound, ListenError, Ports};
use gitcd_net::tls;
use gitcd_repo::branch;
use gitcd_sync::lease::{self, Attempts, Lease, LeaseError};
use gitcd_sync::owner::Served;
use gitcd_sync::{self, MergeError, Puller};
use tokio::sync::watch;
use tokio::task::JoinHandle;

mod frontend;
mod past;
mod scratch;
mod standby;
mod tasks;
mod threads;

use self::frontend::Frontend;
pub use self::past::{PastError, PastMoment};
use self::standby::Turn;
use self::threads::Threads;
use crate::api;
use crate::audit;
use crate::config::Listen;
use crate::gateway::Origins;
use crate::status::Reporter;
pub use gitcd_net::transport::Transport;

/// How long open connections may take to close at a stop.
const DRAIN: Duration = Duration::from_secs(5);
/// Time limit for the release of the lease after a failed start.
const RELEASE: Duration = Duration::from_secs(15);
/// How long the last push may take.
const LAST_PUSH: Duration = Duration::from_secs(5);

/// One branch to serve.
#[derive(Clone, Debug)]
pub struct Config {
    /// The branch in Git.
    pub branch: branch::Config,
    /// Listeners for clients.
    pub listen: Vec<Listen>,
    /// Listeners that serve only pages (`/status`, `/metrics`, `/health`).
    pub listen_pages: Vec<Listen>,
    /// Client URLs to advertise; the listeners' addresses if empty.
    pub advertise: Vec<String>,
    /// Peer URLs to advertise, although there are no other members.
    pub advertise_peer: Vec<String>,
    /// The cluster's id; derived from the branch's name if `None`.
    pub cluster_id: Option<u64>,
    /// The member's id; derived from the branch's name if `None`.
    pub member_id: Option<u64>,
    /// Limits on requests.
    pub limits: api::Limits,
    /// Size of a journal segment, the unit of trimming.
    pub journal_segment_bytes: u64,
    /// How long unreachable objects stay in the repository ([`Duration::MAX`]: forever); `None` for its `gc.pruneExpire`.
    pub prune_expire: Option<Duration>,
    /// Limits of the writer.
    pub store: store::Limits,
    /// Settings of the committer.
    pub committer: committer::Settings,
    /// Audit events of kube-apiserver, from which commits name who made a change.
    pub audit: audit::Config,
    /// How often idle watchers that asked for progress notifications get one.
    pub progress_interval: Duration,
    /// How much history automatic compaction keeps; all if `None`.
    pub retention: Option<Retention>,
    /// Settings of connections.
    pub transport: Transport,
    /// Origins of web pages that may send requests.
    pub origins: Origins,
    /// Certificate, key and CAs for client certificates, for `https` listeners.
    pub tls: Option<tls::Files>,
    /// The same for `listen_pages`; those of `tls` if `None`.
    pub pages_tls: Option<tls::Files>,
    /// Remotes to pull from and push to.
    pub pull: gitcd_sync::Config,
    /// Writer lease, which makes this server the only writer of the branch; `None` for no lease.
    pub lease: Option<lease::Settings>,
    /// A moment to serve, read only; `None` for the present. Remotes, lease, audit and compaction are then ignored.
    pub past: Option<PastMoment>,
    /// Whether ranges at compacted revisions are answered from Git.
    pub reads_git: bool,
    /// Whether the branch is a copy of a running etcd that is being imported: it may then be opened, and leases do not expire by
    /// themselves, because etcd decides that.
    pub imports: bool,
    /// Registry in which a Git host finds the branch, so that pushes go through its store.
    pub served: Served,
    /// Tasks of the process that belong to no branch, such as those of a Git host: every branch reports them, too.
    pub process: Supervisor,
}

impl Config {
    /// Serves a branch with etcd's defaults, no listener, no remote and no lease.
    pub fn new(branch: branch::Config) -> Self {
        Self {
            branch,
            listen: Vec::new(),
            listen_pages: Vec::new(),
            advertise: Vec::new(),
            advertise_peer: Vec::new(),
            cluster_id: None,
            member_id: None,
            limits: api::Limits::default(),
            journal_segment_bytes: 32 << 20,
            prune_expire: None,
            store: store::Limits::default(),
            committer: committer::Settings::default(),
            audit: audit::Config::default(),
            progress_interval: Duration::from_mins(10),
            retention: None,
            transport: Transport::default(),
            origins: Origins::default(),
            tls: None,
            pages_tls: None,
            pull: gitcd_sync::Config::default(),
            lease: None,
            past: None,
            reads_git: false,
            imports: false,
            served: Served::default(),
            process: Supervisor::default(),
        }
    }
}

/// Why a branch is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It could not be recovered.
    #[error(transparent)]
    Open(#[from] Box<OpenError>),
    /// The writer lease could not be acquired.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The moment of the past cannot be served.
    #[error(transparent)]
    Past(#[from] Box<PastError>),
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Merging cannot be set up.
    #[error(transparent)]
    Pull(#[from] MergeError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A socket cannot be passed from the standby to the writer.
    #[error("cannot keep listening: {0}")]
    Socket(std::io::Error),
    /// All acknowledged writes are in the journal, but the last commit before the stop failed.
    #[error("stopped with revisions that are not in Git yet; the journal keeps them, the next start commits them")]
    Uncommitted,
    /// It was stopped before it was served.
    #[error("stopped before the branch was served")]
    Stopped,
    /// A step of the start panicked.
    #[error(transparent)]
    Internal(#[from] Panicked),
}

/// A branch that is being served.
///
/// ```
/// use gitcd_engine::recovery::{self, Beginning};
/// use gitcd_repo::branch;
/// use gitcd_server::config::listen_urls;
/// use gitcd_server::server::{Config, Server};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let repository = folder.path().join("data.git");
/// let branch = branch::Config::named(repository, "default");
/// recovery::init(&branch, Beginning::default())?;
///
/// let listen = listen_urls("listen-urls", "http://127.0.0.1:0")?;
/// let server = Server::start(Config { listen, ..Config::new(branch) }).await?;
/// println!("etcd clients connect to {:?}", server.addresses());
/// server.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Server {
    store: Arc<Store>,
    backing: Backing,
    listeners: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    /// Tasks that are aborted when the server stops.
    aborted: Vec<JoinHandle<()>>,
    /// Tasks that end by themselves when the server stops.
    finishing: Vec<JoinHandle<()>>,
    puller: Arc<Puller>,
    lease: Option<Arc<Lease>>,
}

/// What is behind the store of a server.
#[derive(Debug)]
enum Backing {
    /// A branch that is written.
    Branch { writer: store::Handle, committer: std::thread::JoinHandle<bool>, _lock: StateLock },
    /// A fork of the past, which is removed with the server.
    Past { _folder: scratch::ScratchFolder, _in_use: gitcd_repo::alternates::ObjectsInUse },
}

impl Server {
    /// Recovers the branch and listens; with a lease, once that is acquired.
    ///
    /// # Errors
    /// [`ServeError`]; nothing was changed. The branch's lock and its lease are released, and no thread of it is left.
    pub async fn start(config: Config) -> Result<Self, ServeError> {
        let (_running, stopped) = watch::channel(false);
        Self::starting(config, stopped).await
    }

    /// Does the same, unless `stopped` becomes true while the branch is opened, or waits for its lease.
    ///
    /// # Errors
    /// [`ServeError`], as for [`Server::start`]; [`ServeError::Stopped`].
    pub async fn start_unless(config: Config, stopped: watch::Receiver<bool>) -> Result<Self, ServeError> {
        Self::starting(config, stopped).await
    }

    /// Boxed, so that this crate compiles it: a caller that awaits a future of a named type compiles it again, and with it the HTTP
    /// stack that it starts.
    #[inline(never)]
    fn starting(config: Config, stopped: watch::Receiver<bool>) -> BoxFuture<'static, Result<Self, ServeError>> {
        Self::open_and_serve(config, stopped).boxed()
    }

    async fn open_and_serve(config: Config, mut stopped: watch::Receiver<bool>) -> Result<Self, ServeError> {
        if let Some(moment) = config.past {
            return Box::pin(past::start(config, moment, stopped)).await;
        }
        let (supervisor, attempts) = (Supervisor::within(&config.process), Arc::default());
        let opening = Box::pin(AssertUnwindSafe(open(&config, &supervisor, &attempts)).catch_unwind());
        let opened = tokio::select! {
            opened = opening => opened.unwrap_or_else(|panic| Err(Panicked::of("start the branch", &*panic).into())),
            () = requested(&mut stopped) => Err(ServeError::Stopped),
        };
        let started = match opened {
            Ok(turn) => Box::pin(Self::serve(config, turn, supervisor)).await,
            Err(error) => Err(error),
        };
        // Everything else of the branch has been dropped: another server need not wait until the lease expires.
        if started.is_err() && tokio::time::timeout(RELEASE, attempts.withdraw()).await.is_err() {
            tracing::warn!("the writer lease could not be released; it expires");
        }
        started
    }

    /// Serves an opened branch. If a step fails or panics, no thread and no task of the branch is left.
    async fn serve(config: Config, turn: Turn, supervisor: Supervisor) -> Result<Self, ServeError> {
        let Turn { opened, lease, listeners, pages } = turn;
        let addresses: Vec<_> = listeners.iter().filter_map(|(listener, _)| listener.local_addr().ok()).collect();
        let counters = Arc::new(committer::Counters::default());
        let receivers = bind_audit(&config).await?;
        let threads = {
            let (config, lease, counters) = (config.clone(), lease.clone(), counters.clone());
            blocking::run("start the branch's threads", move || {
                Threads::start(&config, opened, lease.as_deref(), counters)
            })
        };
        let threads = threads.await??;
        let (stop, stopped) = watch::channel(false);
        let tasks = std::panic::catch_unwind(AssertUnwindSafe(|| -> Result<_, ServeError> {
            fail_point::pass(SERVE);
            let reporter = Reporter::new(threads.puller.clone(), lease.clone(), supervisor.clone());
            let git_dir = gitcd_repo::git_dir(&config.branch.repository);
            let maintenance = Arc::new(Maintenance::new(git_dir, config.prune_expire));
            let of = (&threads.store, threads.audit.clone());
            let face = Frontend::new(&config, of, &addresses, &maintenance, counters, reporter);
            let fence = lease.as_ref().map(|lease| lease.gate().clone());
            let with = (config.transport, fence, &threads.store);
            let mut listeners = tasks::listen((listeners, pages), &face, with, &supervisor, &stopped)?;
            listeners.extend(tasks::receive(receivers, threads.audit.as_ref(), &face, &supervisor, &stopped)?);
            let finishing = tasks::exchanges(&supervisor, &threads.puller, lease.as_ref(), maintenance, &stopped);
            // Last: a stop alone does not end them.
            let expiry = !config.imports;
            let mut aborted = tasks::revocations(&supervisor, &threads.store, (expiry, config.retention), &stopped);
            let log_file = threads.audit.as_ref().zip(config.audit.log_file.as_ref());
            aborted.extend(log_file.map(|(audit, path)| tasks::follow_audit(&supervisor, audit, path, &stopped)));
            Ok((listeners, finishing, aborted))
        }));
        match tasks.unwrap_or_else(|panic| Err(Panicked::of(SERVE, &*panic).into())) {
            Ok((listeners, finishing, aborted)) => {
                let Threads { store, writer, committer, puller, audit: _, lock } = threads;
                Ok(Self {
                    store,
                    backing: Backing::Branch { writer, committer, _lock: lock },
                    listeners,
                    addresses,
                    stop,
                    aborted,
                    finishing,
                    puller,
                    lease,
                })
            }
            Err(error) => {
                stop.send_replace(true);
                threads.end().await;
                Err(error)
            }
        }
    }

    /// Returns the addresses of its listeners for clients.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the puller, which exchanges commits with the remotes.
    pub fn puller(&self) -> &Arc<Puller> {
        &self.puller
    }

    /// Waits until another server holds the lease and all commits of this one are on the remote, so that it only has to stop.
    /// Returns the new holder. Never returns without a lease.
    pub async fn deposed(&self) -> String {
        match &self.lease {
            Some(lease) => lease.deposed().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the store, for programs that embed a server.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Stops accepting requests, answers those in progress, commits everything and pushes it where configured.
    ///
    /// # Errors
    /// [`ServeError::Uncommitted`] if the last commit failed; nothing is lost.
    pub async fn stop(self) -> Result<(), ServeError> {
        self.stopping().await
    }

    /// Boxed as the start is.
    #[inline(never)]
    fn stopping(self) -> BoxFuture<'static, Result<(), ServeError>> {
        self.finish().boxed()
    }

    async fn finish(self) -> Result<(), ServeError> {
        let _ = self.stop.send(true);
        for task in &self.aborted {
            task.abort();
        }
        let _ended = futures::future::join_all(self.finishing).await;
        if self.lease.is_none() {
            // With a lease, the handover includes this push.
            self.puller.push_last(LAST_PUSH).await;
        }
        // Accepted writes are answered before streams end. If a client that reads no answers blocks that, its connection is
        // aborted after `DRAIN`, and the store is stopped again.
        let answered = tokio::time::timeout(DRAIN, self.store.stop()).await;
        if self.store.is_past() {
            // There is no writer that ends the watches.
            self.store.end();
        }
        for listener in self.listeners {
            let abort = listener.abort_handle();
            if tokio::time::timeout(DRAIN, listener).await.is_err() {
                abort.abort();
            }
        }
        if answered.is_err() {
            self.store.stop().await;
        }
        let Backing::Branch { writer, committer, _lock } = self.backing else { return Ok(()) };
        let ended = tokio::task::spawn_blocking(move || {
            writer.join();
            committer.join().unwrap_or(false)
        });
        if !ended.await.unwrap_or(false) {
            return Err(ServeError::Uncommitted);
        }
        if let Some(lease) = &self.lease {
            lease.hand_over().await;
        }
        Ok(())
    }
}

/// The last step of a start, as the end of a sentence that starts with "cannot".
const SERVE: &str = "serve the branch";

/// Waits until a stop is requested.
async fn requested(stopped: &mut watch::Receiver<bool>) {
    if stopped.wait_for(|stopped| *stopped).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Binds the ports and recovers the branch; with a lease, once that is acquired.
async fn open(config: &Config, supervisor: &Supervisor, attempts: &Arc<Attempts>) -> Result<Turn, ServeError> {
    // Ports first: a second server fails before it touches the branch's data.
    let (ports, listeners, pages) = bind(config).await?;
    let Some(settings) = &config.lease else {
        let opened = recover(config).await?;
        return Ok(Turn { opened, lease: None, listeners, pages });
    };
    // Clients must not take a waiting server for a serving one.
    drop(listeners);
    standby::wait(config, settings, (&ports, pages), supervisor, attempts).await
}

/// Loads the certificates, and binds the ports for clients and those for pages.
async fn bind(config: &Config) -> Result<(Ports, Vec<Bound>, Vec<Bound>), ServeError> {
    let (listen, tls) = (config.listen.clone(), config.tls.clone());
    let (listen_pages, pages_tls) = (config.listen_pages.clone(), config.pages_tls.clone().or_else(|| tls.clone()));
    let loaded = blocking::run("load the certificates", move || {
        Ok::<_, ListenError>((Ports::new(&listen, tls)?, Ports::new(&listen_pages, pages_tls)?))
    });
    let (ports, pages) = loaded.await??;
    let (listeners, bound_pages) = (ports.bind().await?, pages.bind().await?);
    Ok((ports, listeners, bound_pages))
}

/// Binds the ports for audit events.
async fn bind_audit(config: &Config) -> Result<Vec<Bound>, ServeError> {
    let (listen, tls) = (config.audit.listen.clone(), config.tls.clone());
    let ports = blocking::run("load the certificates", move || Ports::new(&listen, tls)).await??;
    Ok(ports.bind().await?)
}

/// Recovers a branch without a lease.
async fn recover(config: &Config) -> Result<Opened, ServeError> {
    let (branch, segment_bytes, imports) = (config.branch.clone(), config.journal_segment_bytes, config.imports);
    let opened = blocking::run("recover the branch", move || {
        let lock = recovery::lock(&branch).map_err(Box::new)?;
        let lock = if imports { lock.for_import() } else { lock };
        let opened = recovery::open_locked(&branch, segment_bytes, lock).map_err(Box::new)?;
        maintenance::graph::mend(&gitcd_repo::git_dir(&branch.repository));
        Ok::<_, Box<recovery::OpenError>>(opened)
    });
    Ok(opened.await??)
}

//! A Git server for stock clients, over Git's smart HTTP, with a stream of reference changes for followers.
//!
//! [`Host::start`] opens the root folder; [`Host::router`] returns routes that can be mounted anywhere;
//! [`server::Server`] listens. `git upload-pack` answers all but small fetches (`fetch`). Pushes do not run `git receive-pack`:
//! objects are checked in a quarantine, and [`gitcd_repo::refs::Refs`] or their [`Owner`] moves the references (`push`).
//! `docs/design/host.md` has the rules and the crash-safety argument.
//!
//! ```no_run
//! # async fn example() -> Result<(), gitcd_host::StartError> {
//! use gitcd_host::{Access, Config, Host};
//!
//! let config = Config { anonymous: Some(Access::Read), ..Config::new("/srv/git") };
//! let routes = Host::start(config).await?.router();
//! # Ok(()) }
//! ```

mod access;
mod clean;
mod events;
mod fetch;
mod input;
mod name;
mod problem;

mod push;
mod quota;
mod recent;
mod refusals;
mod route;
pub mod server;
mod service;
mod upkeep;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use gitcd_core::blocking::Panicked;
use gitcd_core::program::Program;
use gitcd_core::supervisor::Supervisor;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub use self::access::{Access, Unusable};
pub use gitcd_repo::owner::{Owner, Refusal, Remarks, Update};

use self::access::Gate;
use self::problem::Problem;

/// Cap on the request and follower limits: [`Semaphore::acquire_many`] takes a `u32`.
const MAX_PERMITS: usize = 1 << 20;
/// How long a request waits for a permit before it gets 503.
const QUEUE: Duration = Duration::from_secs(10);

/// What to serve, and to whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Folder with bare repositories, up to eight levels deep.
    pub root: PathBuf,
    /// File with tokens and rights.
    pub tokens: Option<PathBuf>,
    /// Access of clients without a token or certificate.
    pub anonymous: Option<Access>,
    /// Whether a push with write access creates a missing repository.
    pub create_on_push: bool,
    /// Limits on the resources that clients use.
    pub limits: Limits,
    /// Decides on updates of references that belong to a served branch.
    pub owner: Option<Arc<dyn Owner>>,
    /// The only repository to serve; `None` for all below the root.
    pub only: Option<PathBuf>,
    /// Starts the listeners of a [`server::Server`] again after a panic.
    pub supervisor: Supervisor,
}

impl Config {
    /// Returns a configuration that grants no access yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            tokens: None,
            anonymous: None,
            create_on_push: false,
            limits: Limits::default(),
            owner: None,
            only: None,
            supervisor: Supervisor::default(),
        }
    }
}

/// Limits on the resources that clients use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest pack of a push.
    pub max_pack_bytes: u64,
    /// Concurrent fetches and pushes; others wait ten seconds and then get 503.
    pub max_requests: usize,
    /// Concurrent event streams; others get 503 at once.
    pub max_followers: usize,
    /// A client or Git process that makes no progress for this long is dropped.
    pub idle: Duration,
    /// Memory for all pushes together, except for those that are so small that it need not be counted; at least
    /// [`MIN_PUSHES_MEMORY_BYTES`].
    pub pushes_memory_bytes: u64,
    /// Memory of a Git program that reads a push, besides that for each object.
    pub push_memory_bytes: u64,
    /// Processor time of a Git program that reads a push, besides that for its size.
    pub push_cpu: Duration,
    /// Memory of `git upload-pack`, and of the `git pack-objects` that it runs.
    pub fetch_memory_bytes: u64,
    /// Connections of each listener of a [`server::Server`].
    pub connections: gitcd_net::listener::Limits,
}

/// Least memory for all pushes together: that of a push that is read in this process.
pub const MIN_PUSHES_MEMORY_BYTES: u64 = push::PLAIN_MEMORY_BYTES;

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_pack_bytes: 2 << 30,
            max_requests: 64,
            max_followers: 1024,
            idle: Duration::from_mins(2),
            pushes_memory_bytes: 1 << 30,
            push_memory_bytes: 256 << 20,
            push_cpu: Duration::from_secs(30),
            // Enough for some ten million objects.
            fetch_memory_bytes: 2 << 30,
            connections: gitcd_net::listener::Limits::default(),
        }
    }
}

/// Why a host cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No usable `git`.
    #[error("cannot run git; install Git (2.32 or later: the package is called git) or put its folder on the PATH")]
    NoGit(#[source] io::Error),
    /// No usable root.
    #[error("cannot serve {path:?}; give an existing folder with --root")]
    Root {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The tokens file is unusable.
    #[error(transparent)]
    Tokens(#[from] Unusable),
    /// A listener cannot be kept for the next start of its task.
    #[error("cannot keep listening")]
    Socket(#[source] io::Error),
    /// A step panicked.
    #[error(transparent)]
    Internal(#[from] Panicked),
}

/// A running Git host; clones share it.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Canonical, without symbolic links.
    root: PathBuf,
    only: Option<PathBuf>,
    git: Program,
    gate: Gate,
    create_on_push: bool,
    limits: Limits,
    owner: Option<Arc<dyn Owner>>,
    requests: Arc<Semaphore>,
    /// Limits concurrently starting `git upload-pack` processes, so that bursts do not starve the store.
    starting: Semaphore,
    /// Limits those that read a large negotiation.
    negotiating: Semaphore,
    /// Memory of pushes.
    budget: quota::Budget,
    followers: Arc<Semaphore>,
    followed: events::Followed,
    kept: push::Kept,
    recent: recent::Recent,
    refusals: refusals::Refusals,
    upkeep: upkeep::Upkeep,
    stop: watch::Sender<bool>,
}

impl Host {
    /// Finds `git`, reads the tokens and removes what interrupted pushes have left behind.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let git = Program::find().await.map_err(StartError::NoGit)?;
        let (given, only, tokens) = (config.root, config.only, config.tokens);
        let opened = gitcd_core::blocking::run("open the root folder", move || {
            let root_error = |source| StartError::Root { path: given.clone(), source };
            let root = given.canonicalize().map_err(root_error)?;
            if !root.is_dir() {
                return Err(root_error(io::ErrorKind::NotADirectory.into()));
            }
            let only = only.map(|only| only.canonicalize().map_err(root_error)).transpose()?;
            let gate = Gate::open(tokens, config.anonymous)?;
            // Cannot fail: what cannot be removed is logged and stays.
            clean::sweep(&root);
            Ok::<_, StartError>((root, only, gate))
        });
        let (root, only, gate) = opened.await??;
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(Self(Arc::new(Inner {
            root,
            only,
            git,
            gate,
            create_on_push: config.create_on_push,
            limits: config.limits,
            owner: config.owner,
            requests: Arc::new(Semaphore::new(config.limits.max_requests.clamp(1, MAX_PERMITS))),
            starting: Semaphore::new(processors),
            negotiating: Semaphore::new(processors),
            budget: quota::Budget::new(config.limits.pushes_memory_bytes),
            followers: Arc::new(Semaphore::new(config.limits.max_followers.min(MAX_PERMITS))),
            followed: events::Followed::default(),
            kept: push::Kept::default(),
            recent: recent::Recent::default(),
            refusals: refusals::Refusals::default(),
            upkeep: upkeep::Upkeep::default(),
            stop: watch::Sender::new(false),
        })))
    }

    /// Returns the routes: `/<repository>/info/refs` and so on.
    pub fn router(&self) -> Router {
        Router::new().route("/{*path}", axum::routing::any(route::handle)).with_state(self.0.clone())
    }

    fn connections(&self) -> gitcd_net::listener::Limits {
        self.0.limits.connections
    }

    /// Ends the event streams, then waits up to `patience` for running requests and repacks.
    pub async fn stop(&self, patience: Duration) {
        self.0.stop.send_replace(true);
        let all = self.0.limits.max_requests.clamp(1, MAX_PERMITS) as u32;
        // What takes longer is cut off; the next start cleans up.
        let ended = async { tokio::join!(self.0.requests.acquire_many(all), self.0.upkeep.ended()) };
        let _ended = tokio::time::timeout(patience, ended).await;
    }
}

impl Inner {
    /// Returns the folder of a repository, if it is served.
    fn repository(&self, name: &name::Name) -> Option<PathBuf> {
        name.find(&self.root).filter(|found| self.only.as_ref().is_none_or(|only| only == found))
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let permit = tokio::time::timeout(QUEUE, self.requests.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(Problem::Busy)
    }
}

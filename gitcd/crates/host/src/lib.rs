//! Serves repositories to stock Git clients, over Git's smart HTTP, and tells who follows them what changes.
//!
//! [`Host::start`] looks at the root folder; [`Host::router`] gives routes that can be mounted anywhere;
//! [`server::Server`] listens. Fetches are answered by `git upload-pack` (`fetch`). Pushes are not handed to `git`: what they
//! bring is checked in a quarantine, and references are moved by [`gitcd_repo::refs::Refs`] or by their [`Owner`] (`push`).
//! `docs/design/host.md` has the rules and the argument for crashes.
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
mod recent;
mod refusals;
mod route;
pub mod server;
mod upkeep;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use gitcd_core::program::Program;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

pub use self::access::{Access, Unusable};
pub use gitcd_repo::owner::{Owner, Refusal, Remarks, Update};

use self::access::Gate;
use self::problem::Problem;

/// More at once than this is no bound.
const MAX_PERMITS: usize = 1 << 20;
/// How long a request waits for others to end before it is sent away.
const QUEUE: Duration = Duration::from_secs(10);

/// What to serve, and to whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder with bare repositories, in any depth up to eight.
    pub root: PathBuf,
    /// The file with tokens and rights.
    pub tokens: Option<PathBuf>,
    /// What those may do who show neither a token nor a certificate.
    pub anonymous: Option<Access>,
    /// Make repositories that do not exist when somebody who may write pushes into them.
    pub create_on_push: bool,
    /// Bounds on what clients can use up.
    pub limits: Limits,
    /// Who decides about references that are more than files.
    pub owner: Option<Arc<dyn Owner>>,
    /// The only repository to serve, if not all below the root.
    pub only: Option<PathBuf>,
}

impl Config {
    /// A host that nobody has access to yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        let (root, limits) = (root.into(), Limits::default());
        Self { root, tokens: None, anonymous: None, create_on_push: false, limits, owner: None, only: None }
    }
}

/// Bounds on what clients can use up.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest pack of a push.
    pub max_pack_bytes: u64,
    /// Fetches and pushes at the same time; more wait a little and are then sent away.
    pub max_requests: usize,
    /// Clients that follow references at the same time.
    pub max_followers: usize,
    /// A client or a program that makes no progress for so long is given up.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pack_bytes: 2 << 30, max_requests: 64, max_followers: 1024, idle: Duration::from_mins(2) }
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
    /// The tokens cannot be used.
    #[error(transparent)]
    Tokens(#[from] Unusable),
}

/// A host of repositories; clones are the same host.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Without symbolic links.
    root: PathBuf,
    only: Option<PathBuf>,
    git: Program,
    gate: Gate,
    create_on_push: bool,
    limits: Limits,
    owner: Option<Arc<dyn Owner>>,
    requests: Arc<Semaphore>,
    followers: Arc<Semaphore>,
    followed: events::Followed,
    kept: push::Kept,
    recent: recent::Recent,
    refusals: refusals::Refusals,
    upkeep: upkeep::Upkeep,
    stop: watch::Sender<bool>,
}

impl Host {
    /// Looks for `git`, reads the tokens and removes what pushes have left behind that a crash interrupted.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: Config) -> Result<Self, StartError> {
        let git = Program::find().await.map_err(StartError::NoGit)?;
        let root_error = |source| StartError::Root { path: config.root.clone(), source };
        let root = config.root.canonicalize().map_err(root_error)?;
        if !root.is_dir() {
            return Err(root_error(io::ErrorKind::NotADirectory.into()));
        }
        let only = config.only.map(|only| only.canonicalize().map_err(root_error)).transpose()?;
        let gate = Gate::open(config.tokens, config.anonymous)?;
        let swept = root.clone();
        // Cannot fail: what cannot be removed is told and stays.
        let _swept = tokio::task::spawn_blocking(move || clean::sweep(&swept)).await;
        Ok(Self(Arc::new(Inner {
            root,
            only,
            git,
            gate,
            create_on_push: config.create_on_push,
            limits: config.limits,
            owner: config.owner,
            requests: Arc::new(Semaphore::new(config.limits.max_requests.clamp(1, MAX_PERMITS))),
            followers: Arc::new(Semaphore::new(config.limits.max_followers.min(MAX_PERMITS))),
            followed: events::Followed::default(),
            kept: push::Kept::default(),
            recent: recent::Recent::default(),
            refusals: refusals::Refusals::default(),
            upkeep: upkeep::Upkeep::default(),
            stop: watch::Sender::new(false),
        })))
    }

    /// The routes: `/<repository>/info/refs` and the like.
    pub fn router(&self) -> Router {
        Router::new().route("/{*path}", axum::routing::any(route::handle)).with_state(self.0.clone())
    }

    /// Ends the streams of followers, and waits until the requests, and the joins of packs, that are under way have ended, but no longer than `patience`.
    pub async fn stop(&self, patience: Duration) {
        self.0.stop.send_replace(true);
        let all = self.0.limits.max_requests.clamp(1, MAX_PERMITS) as u32;
        // What takes longer is cut off; the next start cleans up.
        let ended = async { tokio::join!(self.0.requests.acquire_many(all), self.0.upkeep.ended()) };
        let _ended = tokio::time::timeout(patience, ended).await;
    }
}

impl Inner {
    /// The repository of a name, if it is served.
    fn repository(&self, name: &name::Name) -> Option<PathBuf> {
        name.find(&self.root).filter(|found| self.only.as_ref().is_none_or(|only| only == found))
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let permit = tokio::time::timeout(QUEUE, self.requests.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(Problem::Busy)
    }
}

//! Reconciles [`GitHubRepository`](trishanku_api::GitHubRepository) objects with repositories on GitHub.
//!
//! | module | content |
//! |---|---|
//! | [`repository`] | which changes a repository needs; pure |
//! | [`github`] | requests to GitHub within its rate limits, and their errors |
//! | `servers` | the servers that may receive tokens |
//! | `clients` | one client per token, shared by all objects with it |
//! | `reconcile` | observe, plan, apply, report |
//!
//! Cost with the default [`GitHubSettings`]: one conditional request per repository every 12 to 18 minutes; GitHub does not count
//! those that find no change. For 500 repositories with one token, these are at most 2,500 of the 5,000 requests per
//! hour. A new repository costs three requests, a changed one two or three.
//!
//! Start with [`controller`].

mod clients;
mod error;
pub mod github;
mod reconcile;
pub mod repository;
mod servers;

use std::time::Duration;

use trishanku_framework::Controller;
use trishanku_framework::queue::Backoff;

pub use self::error::Error;
pub use self::reconcile::Repositories;
pub use self::servers::{Host, NoHost, Servers};

/// The finalizer that keeps an object until its repository has been handled.
pub const FINALIZER: &str = "controllers.trishanku.org/github-repository";

/// Servers, intervals and limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitHubSettings {
    /// The servers that may receive tokens.
    pub servers: Servers,
    /// Time limit of a request.
    pub patience: Duration,
    /// Interval of checks of a repository, give or take a fifth.
    pub resync: Duration,
    /// Delays before a retry after a failure: the first and the longest one.
    pub backoff: (Duration, Duration),
    /// Pause between writes with one token. GitHub asks for a second.
    pub between_writes: Duration,
    /// Writes per hour with one token. GitHub allows 500 creations.
    pub writes_per_hour: usize,
    /// Requests of a token that are left to other users of it.
    pub left_to_others: u64,
    /// Pause at a secondary limit without a given delay; it doubles each time. GitHub asks for a minute.
    pub secondary: Duration,
}

impl Default for GitHubSettings {
    fn default() -> Self {
        Self {
            servers: Servers::default(),
            patience: Duration::from_secs(30),
            resync: Duration::from_mins(15),
            backoff: (Duration::from_secs(2), Duration::from_mins(10)),
            between_writes: Duration::from_secs(1),
            writes_per_hour: 480,
            left_to_others: 100,
            secondary: Duration::from_mins(1),
        }
    }
}

/// Creates the controller of repositories for a manager.
pub fn controller(settings: GitHubSettings) -> Controller<Repositories> {
    let (first, most) = settings.backoff;
    Controller::set_up("githubrepository", |kinds| Repositories::new(kinds, settings))
        .backoff(Backoff { first, most })
        // Users may have fixed a stalled repository on GitHub, which sends no notification.
        .resync(Some(Duration::from_hours(1)))
}

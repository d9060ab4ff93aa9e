//! Keeps repositories on GitHub as [`GitHubRepository`](trishanku_api::GitHubRepository) objects say.
//!
//! | module | what it does |
//! |---|---|
//! | [`repository`] | what of a repository has to be changed: pure |
//! | [`github`] | asks GitHub, as slowly as GitHub wants it, and says in our words what it answered |
//! | `servers` | to which servers tokens are sent |
//! | `clients` | one client for each token, however many objects have it |
//! | `reconcile` | observe, plan, apply, report |
//!
//! What it costs, with the usual [`Terms`]: one conditional request for each repository every 12 to 18 minutes, of which those that find nothing new are not
//! counted by GitHub. That is at most 2,500 an hour for 500 repositories with one token, of the 5,000 that a token has. A new repository costs three requests,
//! a changed one two or three.
//!
//! Begin with [`controller`].

mod clients;
mod error;
pub mod github;
mod reconcile;
pub mod repository;
mod servers;

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use trishanku_framework::queue::Backoff;
use trishanku_framework::{Controller, Key, Manager};

pub use self::error::Error;
pub use self::reconcile::Repositories;
pub use self::servers::{Host, NoHost, Servers};

/// Keeps an object until its repository is dealt with.
pub const FINALIZER: &str = "controllers.trishanku.org/github-repository";

/// Where GitHub is, how often it is asked, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// To which servers tokens are sent.
    pub servers: Servers,
    /// How long a request may take.
    pub patience: Duration,
    /// How often a repository is looked at that is as it should be, give or take a fifth.
    pub resync: Duration,
    /// How long it takes to look again at one that failed: the first time, and at most.
    pub backoff: (Duration, Duration),
    /// How long writes with one token are apart. GitHub asks for a second.
    pub between_writes: Duration,
    /// How many writes a token has in an hour. GitHub allows 500 that make something.
    pub writes_per_hour: usize,
    /// How many requests of a token are left to others.
    pub left_to_others: u64,
    /// How long to wait at a secondary limit that does not say how long; twice as long each further time. GitHub asks for a minute.
    pub secondary: Duration,
}

impl Default for Terms {
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

/// The controller of repositories, for a manager.
pub fn controller(manager: &Manager, terms: Terms) -> Controller<Repositories> {
    let (first, most) = terms.backoff;
    let repositories = Repositories::new(manager, terms);
    let users = repositories.secrets_used();
    Controller::new("githubrepository", repositories)
        .watches(move |secret: &Secret| users.of(&Key::of(secret)))
        .backoff(Backoff { first, most })
        // What only a person can mend may have been mended on GitHub, of which nobody tells us.
        .resync(Some(Duration::from_hours(1)))
}

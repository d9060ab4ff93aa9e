//! Pulls and pushes of one branch.

mod echo;
mod exchange;
mod follow;
mod memory;
mod push;
mod together;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::error::chain;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_mvcc as store;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::exchange::{Echoes, Exchange};
use self::follow::Follower;
use self::memory::{Contained, HistoryLinks, Memory};
use self::together::Together;
use super::dry_run::ApiServer;
use super::fairness::{Exchanged, Known};
use super::git_worker::blocking;
use super::merger::{MergeError, Merger};
use super::plan::PlanError;
use super::progress::{FetchProgress, Fetching};
use super::remote::{Link, Remote, RemoteError};
use super::status::{Condition, Statuses, now};

/// Configuration of a [`Puller`].
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The remotes.
    pub remotes: Vec<Remote>,
    /// Poll interval for remotes without change notifications; `None` disables pulling.
    pub interval: Option<Duration>,
    /// Whether the caller pulls with [`Puller::pull`]; then no warning is logged if `interval` is unset.
    pub by_hand: bool,
    /// How long to defer an echo after the last commit from a remote; five times as long in total at most. An echo is a push
    /// that only moves our branch on the remote to the remote's own commits. Set it for a branch that clients write, which soon
    /// has commits of its own to push; not for one that others follow for the merged result. If unset, echoes are pushed
    /// immediately.
    pub echoes_after: Option<Duration>,
    /// Kinds whose values are hidden in reports of merges, besides Secrets.
    pub secret_kinds: SecretKinds,
    /// The kube-apiserver on the branch, at which files in external commits get a dry run.
    pub api_server: Option<ApiServer>,
}

/// Why a pull, or the push after it, failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// An exchange with the remote failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The merge failed.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl PullError {
    /// Returns the commit at which the history that is needed was cut.
    fn cut_at(&self) -> Option<git2::Oid> {
        match self {
            Self::Merge(MergeError::Plan(error)) => error.cut_at(),
            _ => None,
        }
    }

    /// Returns whether the history that is needed was cut on purpose, and must not be fetched again.
    fn is_cut(&self) -> bool {
        matches!(self, Self::Merge(MergeError::Plan(error)) if error.is_cut())
    }

    /// Returns whether a commit is missing, as in a shallow repository.
    fn lacks_history(&self) -> bool {
        matches!(self, Self::Merge(MergeError::Plan(PlanError::Graph(_)))) && !self.is_cut()
    }

    /// Returns whether an object that a commit needs is missing.
    fn lacks_objects(&self) -> bool {
        matches!(self, Self::Merge(MergeError::Plan(_))) && !self.is_cut()
    }

    fn condition(&self) -> Condition {
        match self {
            Self::Remote(error) => error.condition,
            Self::Merge(MergeError::Plan(error)) if !error.is_cut() => Condition::Damaged,
            Self::Merge(MergeError::Store(store::Error::NoSpace)) => Condition::NoSpace,
            Self::Merge(_) => Condition::Failed,
        }
    }
}

/// Attempts to push everything when a server stops.
const LAST_PUSHES: usize = 3;

/// The puller of one branch: fetches from its remotes, merges, and pushes.
#[derive(Debug)]
pub struct Puller {
    merger: Arc<Merger>,
    config: Config,
    statuses: Statuses,
    /// One for each remote, so that only one exchange at a time runs with it.
    turns: Vec<tokio::sync::Mutex<Link>>,
    /// The fetches of each.
    fetches: Vec<FetchProgress>,
    together: Together,
    /// Commits that were pushed to any remote, which come back when others follow them.
    pushed: Mutex<Known>,
}

impl Puller {
    /// Returns the puller for the branch of `merger`.
    pub fn new(merger: Arc<Merger>, mut config: Config) -> Self {
        for remote in &mut config.remotes {
            if remote.data_reference.is_empty() {
                remote.data_reference.clone_from(&merger.config().data_reference);
            }
        }
        let statuses = Statuses::default();
        config.remotes.iter().for_each(|remote| statuses.change(&remote.name, |_| {}));
        let fetches: Vec<_> = config.remotes.iter().map(|_| FetchProgress::default()).collect();
        let turns = fetches.iter().map(|progress| tokio::sync::Mutex::new(Link::counted(progress.clone()))).collect();
        Self { merger, config, statuses, turns, fetches, together: Together::default(), pushed: Mutex::default() }
    }

    /// Returns the merger of the branch.
    pub fn merger(&self) -> &Arc<Merger> {
        &self.merger
    }

    /// Returns the statuses of the remotes.
    pub fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// Returns the remotes.
    pub fn remotes(&self) -> &[Remote] {
        &self.config.remotes
    }

    /// Returns the names of the remotes, each with the counters of its fetches.
    pub fn fetches(&self) -> impl Iterator<Item = (&str, &FetchProgress)> {
        self.config.remotes.iter().map(|remote| &*remote.name).zip(&self.fetches)
    }

    /// Returns the fetch from a remote that is in progress.
    pub fn fetching(&self, remote: &str) -> Option<Fetching> {
        self.fetches().find(|(name, _)| *name == remote)?.1.current()
    }

    /// Pulls from a remote once, and pushes if configured. May leave a history link to the other side, without waiting for it.
    ///
    /// # Errors
    /// [`PullError`]; earlier merges are kept.
    pub async fn pull(&self, remote: &Remote) -> Result<(), PullError> {
        self.exchange(remote, &mut Memory::default(), Echoes::Push).await.1
    }

    /// Pulls like [`Self::pull`], but adds a history link even if the other side is the one to add it. A running puller does so
    /// after one or two seconds.
    ///
    /// # Errors
    /// [`PullError`].
    pub async fn pull_impatiently(&self, remote: &Remote) -> Result<(), PullError> {
        let mut memory = Memory { links: HistoryLinks::Add, ..Memory::default() };
        self.exchange(remote, &mut memory, Echoes::Push).await.1
    }

    /// Runs one exchange with a remote, when no other one is in progress, and records its outcome in the status.
    async fn exchange(
        &self,
        remote: &Remote,
        memory: &mut Memory,
        echoes: Echoes,
    ) -> (Exchanged, Result<(), PullError>) {
        let at = self.config.remotes.iter().position(|known| known.name == remote.name);
        let turn = match at {
            Some(at) => Some(self.turns[at].lock().await),
            None => None,
        };
        let link = turn.as_deref().cloned().unwrap_or_default();
        let started = Instant::now();
        let (exchanged, outcome) = Exchange::new(self, remote, link, memory, echoes).run().await;
        self.statuses.change(&remote.name, |status| match &outcome {
            Ok(()) => {
                status.condition = Condition::Synced;
                (status.error, status.failures) = (None, 0);
                status.synced_at = Some(now());
                status.pulls += 1;
                status.pull_seconds = started.elapsed().as_secs_f64();
            }
            Err(error) => {
                // After any failure, nothing counts as merged.
                memory.contained = Contained::default();
                status.condition = error.condition();
                status.error = Some(chain(error));
                status.failures += 1;
            }
        });
        (exchanged, outcome)
    }

    /// Pulls and pushes until `stopped`; without an interval, returns immediately.
    pub async fn run(self: Arc<Self>, stopped: watch::Receiver<bool>) {
        if self.config.interval.is_none() {
            if !self.config.by_hand {
                self.report_unpulled().await;
            }
            return;
        }
        // If one of them panics, all end, and the supervisor of this task starts them again.
        let mut followers = JoinSet::new();
        for at in 0..self.config.remotes.len() {
            let (puller, stopped) = (self.clone(), stopped.clone());
            followers.spawn(async move { Follower::new(&puller, at).run(stopped).await });
        }
        while let Some(ended) = followers.join_next().await {
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Pushes the last writes of a stopping server to the remotes that it pushes to and that were reachable until now. Takes at
    /// most `limit`; the next start pushes the rest.
    pub async fn push_last(&self, limit: Duration) {
        if self.config.interval.is_none() {
            return;
        }
        let was_there = |remote: &&Remote| {
            self.statuses.all().get(&remote.name).is_some_and(|status| status.condition == Condition::Synced)
        };
        let pushed = async {
            for remote in self.config.remotes.iter().filter(|remote| remote.push_after_merge).filter(was_there) {
                // Requests in progress may write meanwhile.
                for _ in 0..LAST_PUSHES {
                    let head = self.merger.commit().await.map_err(PullError::from)?;
                    self.pull_impatiently(remote).await?;
                    if self.merger.store().revision() == head.revision {
                        break;
                    }
                }
            }
            Ok::<_, PullError>(())
        };
        match tokio::time::timeout(limit, pushed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "the last commits were not pushed; the next start pushes them");
            }
            Err(_) => tracing::warn!(?limit, "the last commits were not pushed in time; the next start pushes them"),
        }
    }

    /// Reports that the remotes are not pulled, in the log and in their statuses.
    async fn report_unpulled(&self) {
        for remote in self.config.remotes.iter().cloned() {
            let (name, folder) = (remote.name.clone(), self.merger.config().repository.clone());
            let (condition, said) = match blocking(move || remote.location(&folder)).await {
                Ok(_) => (Condition::Unknown, "it is not pulled: --pull-ticker-duration is 0".to_owned()),
                Err(error) => (error.condition, chain(&error)),
            };
            tracing::warn!(remote = name, "{said}");
            self.statuses.change(&name, |status| (status.condition, status.error) = (condition, Some(said)));
        }
    }
}

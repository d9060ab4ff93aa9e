//! Pulls and pushes of one branch.

mod follow;
mod push;
mod together;

use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::error::chain;
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_mvcc as store;
use gitcd_repo::git_dir;
use rand::Rng as _;

use self::together::Together;
use super::dry_run::ApiServer;
use super::fairness::Exchanged;
use super::merger::{DryRun, HistoryLink, MergeError, MergeOptions, MergeOutcome, Merger};
use super::plan::PlanError;
use super::remote::{Fetched, Link, Remote, RemoteError};
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
    Join(#[from] MergeError),
}

impl PullError {
    /// Returns whether a commit is missing, as in a shallow repository.
    fn lacks_history(&self) -> bool {
        matches!(self, Self::Join(MergeError::Plan(PlanError::Graph(_))))
    }

    /// Returns whether an object that a commit needs is missing.
    fn lacks_objects(&self) -> bool {
        matches!(self, Self::Join(MergeError::Plan(_)))
    }

    fn condition(&self) -> Condition {
        match self {
            Self::Remote(error) => error.condition,
            Self::Join(MergeError::Plan(_)) => Condition::Damaged,
            Self::Join(MergeError::Store(store::Error::NoSpace)) => Condition::NoSpace,
            Self::Join(_) => Condition::Failed,
        }
    }
}

/// Attempts of an exchange that loses races before it backs off.
const RACES: usize = 8;
/// How long to wait for the other side to add a history link if the trees are equal.
const PATIENCE: Duration = Duration::from_secs(2);
/// The puller of one branch: fetches from its remotes, merges, and pushes.
#[derive(Debug)]
pub struct Puller {
    merger: Arc<Merger>,
    config: Config,
    statuses: Statuses,
    /// One for each remote, so that only one exchange at a time runs with it.
    turns: Vec<tokio::sync::Mutex<Arc<Link>>>,
    together: Together,
}

/// State of the exchanges with one remote.
#[derive(Debug, Default)]
struct Waiting {
    /// A commit whose history link is left to the other side, and until when.
    left: Option<(Oid, Instant)>,
    /// Whether no history link is left to the other side.
    never: bool,
    /// Whether an echo may be deferred.
    defers: bool,
    /// The commits of the followed branch and of our branch on the remote that were last found in our history; they stay in it.
    merged: [Option<Oid>; 2],
    exchanged: Exchanged,
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
        let turns = config.remotes.iter().map(|_| tokio::sync::Mutex::default()).collect();
        Self { merger, config, statuses, turns, together: Together::default() }
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

    /// Pulls from a remote once, and pushes if configured. May leave a history link to the other side, without waiting for it.
    ///
    /// # Errors
    /// [`PullError`]; earlier merges are kept.
    pub async fn pull(&self, remote: &Remote) -> Result<(), PullError> {
        self.pull_waiting(remote, &mut Waiting::default()).await
    }

    /// Pulls like [`Self::pull`], but adds a history link even if the other side is the one to add it. A running puller does so
    /// after one or two seconds.
    ///
    /// # Errors
    /// [`PullError`].
    pub async fn pull_impatiently(&self, remote: &Remote) -> Result<(), PullError> {
        self.pull_waiting(remote, &mut Waiting { never: true, ..Waiting::default() }).await
    }

    async fn pull_waiting(&self, remote: &Remote, waiting: &mut Waiting) -> Result<(), PullError> {
        let at = self.config.remotes.iter().position(|known| known.name == remote.name);
        let turn = match at {
            Some(at) => Some(self.turns[at].lock().await),
            None => None,
        };
        let link = turn.as_deref().cloned().unwrap_or_default();
        let started = Instant::now();
        let mut outcome = Ok(());
        for _ in 0..RACES {
            outcome = self.exchange_deepening(remote, &link, waiting).await;
            if !matches!(&outcome, Err(error) if error.condition() == Condition::Raced) {
                break;
            }
        }
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
                waiting.merged = [None; 2];
                status.condition = error.condition();
                status.error = Some(chain(error));
                status.failures += 1;
            }
        });
        outcome
    }

    /// Runs an exchange; deepens a shallow repository until it has the history that the merge needs.
    async fn exchange_deepening(
        &self,
        remote: &Remote,
        link: &Arc<Link>,
        waiting: &mut Waiting,
    ) -> Result<(), PullError> {
        for by in [Some(64), Some(1024), Some(16_384), None] {
            let outcome = self.exchange_repairing(remote, link, waiting).await;
            if !outcome.as_ref().is_err_and(PullError::lacks_history) {
                return outcome;
            }
            let (wanted, config) = (remote.clone(), self.merger.config().clone());
            let deepened = tokio::task::spawn_blocking(move || wanted.deepen(&config, by)).await;
            if !deepened.expect("fetching does not panic")? {
                return outcome;
            }
            tracing::info!(
                remote = remote.name,
                commits = by,
                "a merge needs more history; deepening the shallow repository"
            );
        }
        self.exchange(remote, link, waiting).await
    }

    /// Runs an exchange; if an object is missing, fetches everything again and retries.
    async fn exchange_repairing(
        &self,
        remote: &Remote,
        link: &Arc<Link>,
        waiting: &mut Waiting,
    ) -> Result<(), PullError> {
        let outcome = self.exchange(remote, link, waiting).await;
        let Err(error) = outcome else { return Ok(()) };
        let (wanted, config, known) = (remote.clone(), self.merger.config().clone(), link.clone());
        if !error.lacks_objects() || git_dir(&config.repository).join("shallow").exists() {
            return Err(error);
        }
        tracing::warn!(remote = remote.name, error = chain(&error), "the fetch was incomplete; fetching again");
        let fetched = tokio::task::spawn_blocking(move || wanted.fetch_again(&config, &known)).await;
        let bytes = fetched.expect("fetching does not panic")?;
        self.statuses.change(&remote.name, |status| status.fetched_bytes += bytes);
        self.exchange(remote, link, waiting).await
    }

    async fn exchange(&self, remote: &Remote, link: &Arc<Link>, waiting: &mut Waiting) -> Result<(), PullError> {
        let pulled = self.take(remote, link, waiting).await;
        let (own, failed) = match pulled {
            Ok(fetched) => (fetched, None),
            Err(error) if remote.push_on_pull_failure => (self.look(remote, link).await?, Some(error)),
            Err(error) => return Err(error),
        };
        let head = self.merger.head();
        if failed.is_none() && waiting.defers && self.is_echo(remote, &own, head.data) {
            waiting.exchanged.echo = true;
            waiting.exchanged.handled = Some(head);
        } else if remote.push_after_merge || failed.is_some() {
            let pushed = self.push(remote, link, own).await;
            match failed.as_ref().map(PullError::condition) {
                None => {
                    let (pushed, handled) = pushed?;
                    (waiting.exchanged.pushed, waiting.exchanged.handled) = (pushed, Some(handled));
                }
                // The remote is reachable, so the push has to succeed, or its error is reported.
                Some(Condition::NoBranch) => drop(pushed?),
                Some(_) => {}
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Returns whether a push would only move our branch on the remote to a commit that another branch there has.
    fn is_echo(&self, remote: &Remote, there: &Fetched, data: Oid) -> bool {
        remote.push_after_merge
            && remote.data_reference != self.merger.config().data_reference
            && there.theirs == Some(data)
            && there.own.is_some_and(|own| own != data)
    }

    /// Fetches and merges.
    async fn take(&self, remote: &Remote, link: &Arc<Link>, waiting: &mut Waiting) -> Result<Fetched, PullError> {
        let (wanted, config, link) = (remote.clone(), self.merger.config().clone(), link.clone());
        let fetched = tokio::task::spawn_blocking(move || {
            if wanted.fetch { wanted.fetch(&config, &link) } else { wanted.known(&config) }
        });
        let fetched = fetched.await.expect("fetching does not panic")?;
        self.statuses.change(&remote.name, |status| {
            status.fetched_bytes += fetched.bytes;
            status.seen = fetched.theirs.map(|oid| oid.to_string());
        });
        waiting.exchanged.found.extend(fetched.theirs.into_iter().chain(fetched.own));
        // The push that follows creates our own branch there.
        let is_made = remote.push_after_merge && remote.data_reference == self.merger.config().data_reference;
        if fetched.theirs.is_none() && !is_made {
            let reference = &remote.data_reference;
            let problem = if remote.fetch {
                format!("it has no {reference}: push it there, or name another one with --remote-data-reference-names")
            } else {
                let here = remote.tracking(reference);
                format!("there is no {here}: with --no-fetches, another program must fetch {reference} to it")
            };
            return Err(RemoteError { remote: remote.name.clone(), condition: Condition::NoBranch, problem }.into());
        }
        if let Some(theirs) = fetched.theirs {
            let own = remote.data_reference == self.merger.config().data_reference;
            let history_link =
                if remote.push_after_merge && own { HistoryLink::ToPush } else { HistoryLink::WithChanges };
            let reference = &remote.data_reference;
            if waiting.merged[0] != Some(theirs) {
                let how = (&remote.scope, remote.policy, history_link);
                let is_in = self.join(remote, (reference, theirs), waiting, how).await?;
                waiting.merged[0] = is_in.then_some(theirs);
            }
        }
        // External commits on our branch there, or commits of a server that served it before.
        let is_new = |own: &Oid| Some(*own) != fetched.theirs && Some(*own) != waiting.merged[1];
        if let Some(own) = fetched.own.filter(is_new) {
            let mut at_once = Waiting { never: true, ..Waiting::default() };
            let reference = &self.merger.config().data_reference;
            let how = (&Scope::default(), Policy::Later, HistoryLink::ToPush);
            let is_in = self.join(remote, (reference, own), &mut at_once, how).await?;
            waiting.merged[1] = is_in.then_some(own);
            waiting.exchanged.brought |= at_once.exchanged.brought;
        }
        Ok(fetched)
    }

    /// Merges a commit, or leaves the history link to the other side; returns whether the commit was in our history already.
    async fn join(
        &self,
        remote: &Remote,
        (reference, theirs): (&str, Oid),
        waiting: &mut Waiting,
        (scope, policy, history_link): (&Scope, Policy, HistoryLink),
    ) -> Result<bool, PullError> {
        let patient = !waiting.never && waiting.left.is_none_or(|(oid, until)| oid != theirs || Instant::now() < until);
        let how = MergeOptions {
            policy,
            scope: scope.clone(),
            fast_forward: remote.fast_forward,
            impatient: !patient,
            history_link,
            on_top_of: None,
            strict: false,
            dry_run: DryRun::Never,
            by: format!("merge of {}", remote.name).into(),
        };
        let started = Instant::now();
        let joined = self.merger.merge(theirs, &how).await?;
        waiting.exchanged.brought |= !matches!(joined, MergeOutcome::Contained | MergeOutcome::Refused(_));
        // A merge alone does not prove it: what could not be read came in as a commit of ours.
        let is_in = matches!(joined, MergeOutcome::Contained);
        match joined {
            MergeOutcome::Moved => waiting.left = None,
            MergeOutcome::Refused(rejected) => {
                waiting.left = None;
                self.statuses.taken(&self.merger, &remote.name, reference, theirs, &rejected).await;
            }
            MergeOutcome::Contained => {
                waiting.left = None;
                self.statuses.taken(&self.merger, &remote.name, reference, theirs, &[]).await;
            }
            MergeOutcome::NothingNew => {
                waiting.left = None;
                self.statuses.taken(&self.merger, &remote.name, reference, theirs, &[]).await;
                self.statuses.change(&remote.name, |status| status.merged = Some(theirs.to_string()));
            }
            MergeOutcome::Deferred => {
                if waiting.left.is_none_or(|(oid, _)| oid != theirs) {
                    let patience = PATIENCE.mul_f64(rand::rng().random_range(0.5..1.0));
                    waiting.left = Some((theirs, Instant::now() + patience));
                }
            }
            MergeOutcome::Done { keys, conflicts, rejected } => {
                let count = conflicts.count;
                waiting.left = None;
                tracing::debug!(remote = remote.name, %theirs, keys, conflicts = count, "merged");
                for file in &rejected {
                    tracing::warn!(remote = remote.name, path = file.path, reason = file.reason, "rejected a file");
                }
                let took = started.elapsed().as_secs_f64();
                self.statuses.taken(&self.merger, &remote.name, reference, theirs, &rejected).await;
                self.statuses.change(&remote.name, |status| {
                    status.merge_seconds += took;
                    status.joined(theirs, &conflicts);
                });
            }
        }
        Ok(is_in)
    }
}

//! Follows the remotes of one branch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::Oid;
use rand::Rng as _;
use tokio::sync::watch;

use super::join::{Histories, How, JoinError, Joined, Joiner};
use super::notices::Notices;

use super::pace::{Breath, Exchanged, Known, Pace};
use super::plan::PlanError;
use super::remote::{Fetched, Link, Push, Remote, RemoteError};
use super::status::{Condition, Statuses, now};
use crate::error::chain;
use crate::git::refs::Refs;
use crate::merge::Policy;
use crate::merge::scope::Scope;
use crate::recovery::git_dir;
use crate::store;

/// What to follow, and how often.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The remotes.
    pub remotes: Vec<Remote>,
    /// How often a remote is looked at that does not tell of changes; `None`: never by itself.
    pub interval: Option<Duration>,
}

/// Why a pull, or the push after it, did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The remote.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The merge.
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl PullError {
    /// Whether a commit is missing, as in a shallow repository.
    fn lacks_history(&self) -> bool {
        matches!(self, Self::Join(JoinError::Plan(PlanError::Graph(_))))
    }

    /// Whether something that a commit leads to is missing.
    fn lacks_objects(&self) -> bool {
        matches!(self, Self::Join(JoinError::Plan(_)))
    }

    fn condition(&self) -> Condition {
        match self {
            Self::Remote(error) => error.condition,
            Self::Join(JoinError::Plan(_)) => Condition::Damaged,
            Self::Join(JoinError::Store(store::Error::NoSpace)) => Condition::NoSpace,
            Self::Join(_) => Condition::Failed,
        }
    }
}

/// A push that lost a race begins anew so often before it backs off.
const RACES: usize = 8;
/// The other side has so long to join histories that differ in nothing else.
const PATIENCE: Duration = Duration::from_secs(2);
/// After failures in a row the next attempt comes after this, doubled each time,
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// up to this.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// Follows the remotes of one branch.
#[derive(Debug)]
pub struct Puller {
    joiner: Arc<Joiner>,
    config: Config,
    statuses: Statuses,
    /// One for each remote: only one exchange at a time.
    turns: Vec<tokio::sync::Mutex<Arc<Link>>>,
}

/// What a remote is waited for, and what came of the last exchange.
#[derive(Debug, Default)]
struct Waiting {
    /// A commit that the other side is to join, and until when.
    left: Option<(Oid, Instant)>,
    /// Whether nothing is left to the other side.
    never: bool,
    exchanged: Exchanged,
}

impl Puller {
    /// For the branch of a joiner.
    pub fn new(joiner: Arc<Joiner>, mut config: Config) -> Self {
        for remote in &mut config.remotes {
            if remote.data_reference.is_empty() {
                remote.data_reference.clone_from(&joiner.config().data_reference);
            }
        }
        let statuses = Statuses::default();
        config.remotes.iter().for_each(|remote| statuses.change(&remote.name, |_| {}));
        let turns = config.remotes.iter().map(|_| tokio::sync::Mutex::default()).collect();
        Self { joiner, config, statuses, turns }
    }

    /// What merges.
    pub fn joiner(&self) -> &Arc<Joiner> {
        &self.joiner
    }

    /// What is known of the remotes.
    pub fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// The remotes.
    pub fn remotes(&self) -> &[Remote] {
        &self.config.remotes
    }

    /// Pulls and pushes until told to stop; not at all without an interval.
    pub async fn run(self: Arc<Self>, stopped: watch::Receiver<bool>) {
        if self.config.interval.is_none() {
            self.rest().await;
            return;
        }
        let tasks: Vec<_> = (0..self.config.remotes.len())
            .map(|at| {
                let (puller, stopped) = (self.clone(), stopped.clone());
                tokio::spawn(async move { puller.follow(at, stopped).await })
            })
            .collect();
        for task in tasks {
            let _ended = task.await;
        }
    }

    /// Says which remotes are never pulled, so that nobody waits for them.
    async fn rest(&self) {
        for remote in self.config.remotes.iter().cloned() {
            let (name, folder) = (remote.name.clone(), self.joiner.config().repository.clone());
            let place = tokio::task::spawn_blocking(move || remote.place(&folder));
            let (condition, said) = match place.await.expect("reading a configuration does not panic") {
                Ok(_) => (Condition::Unknown, "it is not pulled: --pull-ticker-duration is 0".to_owned()),
                Err(error) => (error.condition, chain(&error)),
            };
            tracing::warn!(remote = name, "{said}");
            self.statuses.change(&name, |status| (status.condition, status.error) = (condition, Some(said)));
        }
    }

    async fn follow(&self, at: usize, mut stopped: watch::Receiver<bool>) {
        let remote = &self.config.remotes[at];
        let mut heads = self.joiner.heads();
        let (mut failures, mut last) = (0_u32, Condition::Unknown);
        let mut waiting = Waiting::default();
        let (mut notices, mut pace, mut known) = (Notices::default(), Pace::default(), Known::default());
        loop {
            heads.borrow_and_update();
            waiting.exchanged = Exchanged::default();
            let link = self.turns[at].lock().await.clone();
            tokio::select! {
                () = notices.open(remote, self.joiner.config(), &link, failures == 0) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            let started = Instant::now();
            let outcome = tokio::select! {
                outcome = self.pull_waiting(remote, &mut waiting) => outcome,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            let pause = match &outcome {
                Ok(()) => {
                    failures = 0;
                    let patience = waiting.left.map(|(_, until)| until.saturating_duration_since(Instant::now()));
                    self.config.interval.into_iter().chain(patience).min()
                }
                // Others were faster so often that they deserve to rest now.
                Err(error) if error.condition() == Condition::Raced => Some(FIRST_RETRY),
                // It is there and answers, and somebody may make the branch at any moment.
                Err(error) if error.condition() == Condition::NoBranch => {
                    if last != Condition::NoBranch {
                        tracing::warn!(remote = remote.name, error = chain(error), "nothing to pull yet");
                    }
                    failures = 0;
                    self.config.interval
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let longest = LAST_RETRY.min(FIRST_RETRY * 2_u32.saturating_pow(failures.min(16) - 1));
                    let pause = longest.mul_f64(rand::rng().random_range(0.5..1.0));
                    tracing::warn!(remote = remote.name, error = chain(error), again_in = ?pause, "pull failed");
                    Some(pause)
                }
            };
            last = outcome.as_ref().map_or_else(PullError::condition, |()| Condition::Synced);
            known.add(&waiting.exchanged);
            let config = self.joiner.config();
            match pace.after(&waiting.exchanged, started.elapsed(), Instant::now()) {
                Breath::Pause(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                },
                Breath::Turn(turn) => tokio::select! {
                    () = tokio::time::sleep(turn) => {}
                    () = notices.next(remote, config, &known) => continue,
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                },
            }
            let pushes = match last {
                Condition::Synced => remote.push_after_merge,
                Condition::NoBranch => remote.push_on_pull_failure,
                _ => false,
            };
            let resting = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = resting => {}
                () = notices.next(remote, config, &known) => {}
                // What was committed here is to be pushed.
                _ = heads.changed(), if pushes => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
    }

    /// Pulls from a remote once, and pushes if that is asked for. Never waits for the other side.
    ///
    /// # Errors
    /// [`PullError`]; what was merged before stays.
    pub async fn pull(&self, remote: &Remote) -> Result<(), PullError> {
        self.pull_waiting(remote, &mut Waiting::default()).await
    }

    /// The same, but joins histories that differ in nothing else even if the other side should do so. Those who follow a branch do
    /// this when they have waited for one or two seconds.
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
                status.condition = error.condition();
                status.error = Some(chain(error));
                status.failures += 1;
            }
        });
        outcome
    }

    /// An exchange, in a shallow repository with as much of the history as a merge needs.
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
            let (wanted, config) = (remote.clone(), self.joiner.config().clone());
            let deepened = tokio::task::spawn_blocking(move || wanted.deepen(&config, by)).await;
            if !deepened.expect("fetching does not panic")? {
                return outcome;
            }
            tracing::info!(
                remote = remote.name,
                commits = by,
                "a merge needs more of the history; the shallow repository is deepened"
            );
        }
        self.exchange(remote, link, waiting).await
    }

    /// An exchange, after which nothing is missing that only looked as if it were here.
    async fn exchange_repairing(
        &self,
        remote: &Remote,
        link: &Arc<Link>,
        waiting: &mut Waiting,
    ) -> Result<(), PullError> {
        let outcome = self.exchange(remote, link, waiting).await;
        let Err(error) = outcome else { return Ok(()) };
        let (wanted, config, known) = (remote.clone(), self.joiner.config().clone(), link.clone());
        if !error.lacks_objects() || git_dir(&config.repository).join("shallow").exists() {
            return Err(error);
        }
        tracing::warn!(
            remote = remote.name,
            error = chain(&error),
            "what was fetched is incomplete; it is fetched again"
        );
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
        if remote.push_after_merge || failed.is_some() {
            let pushed = self.push(remote, link, own).await;
            if failed.is_none() {
                waiting.exchanged.pushed = pushed?;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Where our branch is there, although nothing can be pulled.
    async fn look(&self, remote: &Remote, link: &Arc<Link>) -> Result<Fetched, PullError> {
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let found = tokio::task::spawn_blocking(move || wanted.own(&config, &link).or_else(|_| wanted.known(&config)));
        Ok(found.await.expect("looking at references does not panic")?)
    }

    /// Fetches and merges.
    async fn take(&self, remote: &Remote, link: &Arc<Link>, waiting: &mut Waiting) -> Result<Fetched, PullError> {
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let fetched = tokio::task::spawn_blocking(move || {
            if wanted.fetch { wanted.fetch(&config, &link) } else { wanted.known(&config) }
        });
        let fetched = fetched.await.expect("fetching does not panic")?;
        self.statuses.change(&remote.name, |status| {
            status.fetched_bytes += fetched.bytes;
            status.seen = fetched.theirs.map(|oid| oid.to_string());
        });
        waiting.exchanged.found.extend(fetched.theirs.into_iter().chain(fetched.own));
        // Our own branch is made there by the push that follows.
        let is_made = remote.push_after_merge && remote.data_reference == self.joiner.config().data_reference;
        if fetched.theirs.is_none() && !is_made {
            let problem = format!("it has no {}", remote.data_reference);
            return Err(RemoteError { remote: remote.name.clone(), condition: Condition::NoBranch, problem }.into());
        }
        if let Some(theirs) = fetched.theirs {
            let own = remote.data_reference == self.joiner.config().data_reference;
            let histories = if remote.push_after_merge && own { Histories::ToPush } else { Histories::Later };
            let reference = &remote.data_reference;
            self.join(remote, (reference, theirs), waiting, (&remote.scope, remote.policy, histories)).await?;
        }
        // Somebody pushed to our branch there: a person, or who served it before.
        if let Some(own) = fetched.own.filter(|own| Some(*own) != fetched.theirs) {
            let mut at_once = Waiting { never: true, ..Waiting::default() };
            let reference = &self.joiner.config().data_reference;
            let how = (&Scope::default(), Policy::Later, Histories::ToPush);
            self.join(remote, (reference, own), &mut at_once, how).await?;
            waiting.exchanged.brought |= at_once.exchanged.brought;
        }
        Ok(fetched)
    }

    async fn join(
        &self,
        remote: &Remote,
        (reference, theirs): (&str, Oid),
        waiting: &mut Waiting,
        (scope, policy, histories): (&Scope, Policy, Histories),
    ) -> Result<(), PullError> {
        let patient = !waiting.never && waiting.left.is_none_or(|(oid, until)| oid != theirs || Instant::now() < until);
        let how = How {
            policy,
            scope: scope.clone(),
            fast_forward: remote.fast_forward,
            impatient: !patient,
            histories,
            on_top_of: None,
            strict: false,
            by: format!("merge of {}", remote.name).into(),
        };
        let started = Instant::now();
        let joined = self.joiner.join(theirs, &how).await?;
        waiting.exchanged.brought |= !matches!(joined, Joined::Contained | Joined::Refused(_));
        match joined {
            Joined::Moved => waiting.left = None,
            Joined::Refused(rejected) => {
                waiting.left = None;
                self.statuses.taken(&self.joiner, &remote.name, reference, theirs, &rejected).await;
            }
            Joined::Contained => {
                waiting.left = None;
                self.statuses.taken(&self.joiner, &remote.name, reference, theirs, &[]).await;
            }
            Joined::NothingNew => {
                waiting.left = None;
                self.statuses.taken(&self.joiner, &remote.name, reference, theirs, &[]).await;
                self.statuses.change(&remote.name, |status| status.merged = Some(theirs.to_string()));
            }
            Joined::Left => {
                if waiting.left.is_none_or(|(oid, _)| oid != theirs) {
                    let patience = PATIENCE.mul_f64(rand::rng().random_range(0.5..1.0));
                    waiting.left = Some((theirs, Instant::now() + patience));
                }
            }
            Joined::Done { keys, conflicts, rejected } => {
                waiting.left = None;
                tracing::debug!(remote = remote.name, %theirs, keys, conflicts, "merged");
                for file in &rejected {
                    tracing::warn!(remote = remote.name, path = file.path, reason = file.reason, "file not taken");
                }
                let took = started.elapsed().as_secs_f64();
                self.statuses.taken(&self.joiner, &remote.name, reference, theirs, &rejected).await;
                self.statuses.change(&remote.name, |status| {
                    status.merge_seconds += took;
                    status.joined(theirs, conflicts);
                });
            }
        }
        Ok(())
    }

    /// Pushes the branch, and its metadata if that is ours there; returns what the branch was moved to.
    async fn push(&self, remote: &Remote, link: &Arc<Link>, there: Fetched) -> Result<Option<Oid>, PullError> {
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let data = self.joiner.head().data;
        if there.own == Some(data) {
            // A jump of revisions is in the metadata only, and must not be made twice.
            return self.push_metadata(remote, &link, there).await.map(|()| None);
        }
        if let Some(own) = there.own
            && !self.joiner.is_ancestor(own, data).await?
        {
            if self.joiner.is_ancestor(data, own).await? {
                // It has all of ours, and nothing that we take.
                return self.push_metadata(remote, &link, there).await.map(|()| None);
            }
            // It moved on there: what it has comes first.
            let problem = format!("{} has commits there that are not merged here", self.joiner.config().data_reference);
            return Err(RemoteError { remote: remote.name.clone(), condition: Condition::Raced, problem }.into());
        }
        let metadata = self.own_metadata(remote, there).await?;
        let pushed = tokio::task::spawn_blocking(move || {
            // In this order: the metadata may describe a later commit than the one that is pushed, never an earlier one.
            let data = (config.data_reference.clone(), data, there.own);
            let metadata = metadata.map(|oid| (config.metadata_reference.clone(), oid, there.own_metadata));
            wanted.push(
                &config,
                &link,
                &Push { updates: std::iter::once(data).chain(metadata).collect(), there: there.tips() },
            )
        });
        let bytes = pushed.await.expect("pushing does not panic")?;
        self.statuses.change(&remote.name, |status| {
            status.pushed = Some(data.to_string());
            status.pushed_bytes += bytes;
        });
        Ok(Some(data))
    }

    /// Pushes the metadata alone, if it continues what is there.
    async fn push_metadata(&self, remote: &Remote, link: &Arc<Link>, there: Fetched) -> Result<(), PullError> {
        if there.own_metadata.is_none() {
            return Ok(());
        }
        let Some(metadata) = self.own_metadata(remote, there).await?.filter(|own| Some(*own) != there.own_metadata)
        else {
            return Ok(());
        };
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let pushed = tokio::task::spawn_blocking(move || {
            let update = (config.metadata_reference.clone(), metadata, there.own_metadata);
            wanted.push(&config, &link, &Push { updates: vec![update], there: there.tips() })
        });
        let bytes = pushed.await.expect("pushing does not panic")?;
        self.statuses.change(&remote.name, |status| status.pushed_bytes += bytes);
        Ok(())
    }

    /// Our metadata, if it is to be pushed: nobody else's is overwritten. Whoever serves the branch there has its own.
    async fn own_metadata(&self, remote: &Remote, there: Fetched) -> Result<Option<Oid>, PullError> {
        let (folder, name) =
            (git_dir(&self.joiner.config().repository), self.joiner.config().metadata_reference.clone());
        let read = tokio::task::spawn_blocking(move || Refs::open(&folder).and_then(|refs| refs.read(&name)));
        let own = read.await.expect("reading a reference does not panic").map_err(|error| RemoteError {
            remote: remote.name.clone(),
            condition: Condition::Failed,
            problem: error.to_string(),
        })?;
        Ok(match (own, there.own_metadata) {
            (Some(own), Some(theirs)) if !self.joiner.is_ancestor(theirs, own).await.unwrap_or(false) => None,
            (own, _) => own,
        })
    }
}

//! Scheduling of exchanges with a remote: after changes there or here, at the poll interval, and again after failures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::error::chain;
use gitcd_engine::committer::Head;
use rand::Rng as _;
use tokio::sync::watch;

use super::super::fairness::{Delay, Exchanged, Fairness, Known};
use super::super::notices::{FOLLOW_AGAIN, Notices};
use super::super::remote::{Location, Remote};
use super::super::status::Condition;
use super::{PullError, Puller, Waiting};

/// Attempts to push everything when a server stops.
const LAST_PUSHES: usize = 3;
/// First delay after a failure; doubled with each consecutive failure,
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// up to this.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long to wait for another remote of the same repository to push our commits; its exchange may be large, or stuck.
const BROUGHT_WITHIN: Duration = Duration::from_secs(1);
/// Longest deferral of an echo, as a multiple of [`Config::echoes_after`](super::Config::echoes_after).
const LONGEST_ECHO: u32 = 5;

/// A deferred push of commits that all came from the remote, to our branch there.
#[derive(Clone, Copy, Debug)]
struct Echo {
    first: Instant,
    last: Instant,
}

impl Echo {
    /// Returns the echo after an exchange that deferred it; `more` is whether the exchange brought commits.
    fn after(before: Option<Self>, more: bool, started: Instant) -> Self {
        let before = before.unwrap_or(Self { first: started, last: started });
        if more { Self { last: started, ..before } } else { before }
    }

    /// Returns how long it may still be deferred.
    fn left(self, quiet: Duration) -> Duration {
        let of_all = (quiet * LONGEST_ECHO).saturating_sub(self.first.elapsed());
        quiet.saturating_sub(self.last.elapsed()).min(of_all)
    }
}

impl Puller {
    /// Pulls and pushes until `stopped`; without an interval, returns immediately.
    pub async fn run(self: Arc<Self>, stopped: watch::Receiver<bool>) {
        if self.config.interval.is_none() {
            if !self.config.by_hand {
                self.rest().await;
            }
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
    async fn rest(&self) {
        for remote in self.config.remotes.iter().cloned() {
            let (name, folder) = (remote.name.clone(), self.merger.config().repository.clone());
            let location = tokio::task::spawn_blocking(move || remote.location(&folder));
            let (condition, said) = match location.await.expect("reading a configuration does not panic") {
                Ok(_) => (Condition::Unknown, "it is not pulled: --pull-ticker-duration is 0".to_owned()),
                Err(error) => (error.condition, chain(&error)),
            };
            tracing::warn!(remote = name, "{said}");
            self.statuses.change(&name, |status| (status.condition, status.error) = (condition, Some(said)));
        }
    }

    async fn follow(&self, at: usize, mut stopped: watch::Receiver<bool>) {
        let remote = &self.config.remotes[at];
        // Servers that follow a branch of this name push to it, too.
        let is_shared = remote.data_reference == self.merger.config().data_reference;
        let mut heads = self.merger.heads();
        let (mut failures, mut last) = (0_u32, Condition::Unknown);
        let mut waiting = Waiting::default();
        let (mut notices, mut fairness, mut known) = (Notices::default(), Fairness::new(is_shared), Known::default());
        let mut echo = None::<Echo>;
        let quiet = self.config.echoes_after.unwrap_or_default();
        let is_one_of_several = self.config.remotes.len() > 1;
        loop {
            let before = *heads.borrow_and_update();
            waiting.exchanged = Exchanged::default();
            // After a failed push, no echo is deferred: an exchange without the push would count as a success.
            waiting.defers = failures == 0 && !quiet.is_zero() && echo.is_none_or(|echo| !echo.left(quiet).is_zero());
            let link = self.turns[at].lock().await.clone();
            tokio::select! {
                () = notices.open(remote, self.merger.config(), &link, failures == 0) => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
            let started = Instant::now();
            let pushing = notices.location().filter(|_| remote.push_after_merge && is_one_of_several);
            let under_way = pushing.map(|location| self.together.begin(location));
            let outcome = tokio::select! {
                outcome = self.pull_waiting(remote, &mut waiting) => outcome,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
            let exchanged = &waiting.exchanged;
            if let (Some(under_way), Some(head), false) = (&under_way, exchanged.handled, exchanged.echo)
                // The remote's URL may have changed meanwhile.
                && remote.location(&self.merger.config().repository).ok().as_ref() == notices.location()
            {
                under_way.brought(head);
            }
            drop(under_way);
            // Changes of the head by the exchange itself need no further exchange.
            if !exchanged.handled.unwrap_or(before).is_at(&heads.borrow_and_update()) {
                heads.mark_changed();
            }
            echo = exchanged.echo.then(|| Echo::after(echo, exchanged.brought, started));
            let pause = match &outcome {
                Ok(()) => {
                    // Notifications are requested only once the remote is known to be reachable again.
                    let follow_again = (failures > 0 && !notices.is_told()).then_some(FOLLOW_AGAIN);
                    failures = 0;
                    let patience = waiting.left.map(|(_, until)| until.saturating_duration_since(Instant::now()));
                    self.config.interval.into_iter().chain(patience).chain(follow_again).min()
                }
                // The remote is reachable, and the branch may be created at any time.
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
            let config = self.merger.config();
            let ours = || self.merger.head().data;
            match fairness.after(&waiting.exchanged, started.elapsed(), Instant::now()) {
                Delay::Batch(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                },
                Delay::Yield(turn) => tokio::select! {
                    () = tokio::time::sleep(turn) => {}
                    () = notices.next(remote, config, &known, ours) => continue,
                    _ = stopped.wait_for(|stopped| *stopped) => return,
                },
            }
            let pushes = match last {
                Condition::Synced => remote.push_after_merge,
                Condition::NoBranch => remote.push_on_pull_failure,
                _ => false,
            };
            let echoes = echo.map(|echo| echo.left(quiet));
            let resting = async {
                match pause.into_iter().chain(echoes).min() {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            // Without notifications, every commit starts an exchange.
            let repository = notices.location().filter(|_| is_one_of_several && notices.is_told()).cloned();
            tokio::select! {
                () = resting => {}
                () = notices.next(remote, config, &known, ours) => {}
                // A new commit here is to be pushed.
                () = self.committed(remote, repository.as_ref(), &mut heads), if pushes => {}
                _ = stopped.wait_for(|stopped| *stopped) => return,
            }
        }
    }

    /// Waits for a commit that no other remote of the same repository pushes.
    async fn committed(&self, remote: &Remote, location: Option<&Location>, heads: &mut watch::Receiver<Head>) {
        while heads.changed().await.is_ok() {
            let Some(location) = location else { return };
            // Commits during the wait are considered again by the next round.
            let head = *heads.borrow_and_update();
            let is_there = self.together.is_there(location, || self.merger.head());
            if !tokio::time::timeout(BROUGHT_WITHIN, is_there).await.unwrap_or_default() {
                return;
            }
            self.statuses.change(&remote.name, |status| status.pushed = Some(head.data.to_string()));
        }
    }
}

//! Scheduling of exchanges with a remote, as a state machine: after changes there or here, at the poll interval, and again after
//! failures.
//!
//! ```text
//! Connecting ──> Exchanging ──> Yielding ──> Waiting ──> Connecting
//!                                   └──────────────────> Connecting (another server has pushed)
//! ```
//!
//! One loop drives it; each wait ends when the server stops.

use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::error::chain;
use gitcd_engine::committer::Head;
use rand::Rng as _;
use tokio::sync::watch;

use super::echo::Echo;
use super::exchange::Echoes;
use super::memory::Memory;
use super::{PullError, Puller};
use crate::fairness::{Delay, Fairness, Known};
use crate::git_worker::blocking;
use crate::notices::{FOLLOW_AGAIN, Notices};
use crate::remote::{Location, Remote};
use crate::status::Condition;

/// First delay after a failure; doubled with each consecutive failure,
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// up to this.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How long to wait for another remote of the same repository to push our commits; its exchange may be large, or stuck.
const BROUGHT_WITHIN: Duration = Duration::from_secs(1);

/// The state of a follower.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Opens the change notifications of the remote.
    Connecting,
    /// Pulls and pushes.
    Exchanging {
        /// Our head when the exchange was due.
        before: Head,
        echoes: Echoes,
    },
    /// Lets changes gather, or other servers push first.
    Yielding {
        delay: Delay,
        /// How long to wait for changes after that; `None` for ever.
        pause: Option<Duration>,
    },
    /// Waits for a change there or here.
    Waiting {
        /// For how long; `None` for ever.
        pause: Option<Duration>,
    },
}

/// The follower of one remote.
pub(super) struct Follower<'p> {
    puller: &'p Puller,
    at: usize,
    remote: &'p Remote,
    heads: watch::Receiver<Head>,
    notices: Notices,
    fairness: Fairness,
    known: Known,
    memory: Memory,
    echo: Option<Echo>,
    /// Consecutive failures.
    failures: u32,
    /// The condition after the last exchange.
    last: Condition,
}

impl<'p> Follower<'p> {
    /// Returns the follower of the remote with this number.
    pub(super) fn new(puller: &'p Puller, at: usize) -> Self {
        let remote = &puller.config.remotes[at];
        // Servers that follow a branch of this name push to it, too.
        let is_shared = remote.data_reference == puller.merger.config().data_reference;
        Self {
            puller,
            at,
            remote,
            heads: puller.merger.heads(),
            notices: Notices::default(),
            fairness: Fairness::new(is_shared),
            known: Known::default(),
            memory: Memory::default(),
            echo: None,
            failures: 0,
            last: Condition::Unknown,
        }
    }

    /// Follows the remote until `stopped`.
    pub(super) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let mut state = State::Connecting;
        loop {
            let next = async {
                match state {
                    State::Connecting => self.connect().await,
                    State::Exchanging { before, echoes } => self.exchange(before, echoes).await,
                    State::Yielding { delay, pause } => self.give_way(delay, pause).await,
                    State::Waiting { pause } => self.wait(pause).await,
                }
            };
            state = tokio::select! {
                next = next => next,
                _ = stopped.wait_for(|stopped| *stopped) => return,
            };
        }
    }

    async fn connect(&mut self) -> State {
        let before = *self.heads.borrow_and_update();
        let quiet = self.quiet();
        // After a failed push, no echo is deferred: an exchange without the push would count as a success.
        let defers = self.failures == 0 && !quiet.is_zero() && self.echo.is_none_or(|echo| !echo.left(quiet).is_zero());
        let link = self.puller.turns[self.at].lock().await.clone();
        self.notices.open(self.remote, self.puller.merger.config(), &link, self.failures == 0).await;
        State::Exchanging { before, echoes: if defers { Echoes::Defer } else { Echoes::Push } }
    }

    async fn exchange(&mut self, before: Head, echoes: Echoes) -> State {
        let started = Instant::now();
        let is_coordinated = self.remote.push_after_merge && self.is_one_of_several();
        let pushing = self.notices.location().filter(|_| is_coordinated);
        let under_way = pushing.map(|location| self.puller.together.begin(location));
        let (exchanged, outcome) = self.puller.exchange(self.remote, &mut self.memory, echoes).await;
        if let (Some(under_way), Some(head), false) = (&under_way, exchanged.handled, exchanged.echo)
            // The remote's URL may have changed meanwhile.
            && self.location().await.as_ref() == self.notices.location()
        {
            under_way.brought(head);
        }
        drop(under_way);
        // Changes of the head by the exchange itself need no further exchange.
        if !exchanged.handled.unwrap_or(before).is_at(&self.heads.borrow_and_update()) {
            self.heads.mark_changed();
        }
        self.echo = exchanged.echo.then(|| Echo::after(self.echo, exchanged.brought, started));
        let pause = match &outcome {
            Ok(()) => self.succeeded(),
            // The remote is reachable, and the branch may be created at any time.
            Err(error) if error.condition() == Condition::NoBranch => self.has_no_branch(error),
            Err(error) => Some(self.failed(error)),
        };
        self.last = outcome.as_ref().map_or_else(PullError::condition, |()| Condition::Synced);
        self.known.add(&exchanged);
        self.puller.pushed.lock().add_all(exchanged.pushed);
        State::Yielding { delay: self.fairness.after(&exchanged, started.elapsed(), Instant::now()), pause }
    }

    /// Returns when the remote is due again after a successful exchange.
    fn succeeded(&mut self) -> Option<Duration> {
        // Notifications are requested only once the remote is known to be reachable again.
        let follow_again = (self.failures > 0 && !self.notices.is_active()).then_some(FOLLOW_AGAIN);
        self.failures = 0;
        self.puller.config.interval.into_iter().chain(self.memory.links.patience()).chain(follow_again).min()
    }

    fn has_no_branch(&mut self, error: &PullError) -> Option<Duration> {
        if self.last != Condition::NoBranch {
            tracing::warn!(remote = self.remote.name, error = chain(error), "nothing to pull yet");
        }
        self.failures = 0;
        self.puller.config.interval
    }

    fn failed(&mut self, error: &PullError) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let longest = LAST_RETRY.min(FIRST_RETRY * 2_u32.saturating_pow(self.failures.min(16) - 1));
        let pause = longest.mul_f64(rand::rng().random_range(0.5..1.0));
        tracing::warn!(remote = self.remote.name, error = chain(error), again_in = ?pause, "pull failed");
        pause
    }

    async fn give_way(&mut self, delay: Delay, pause: Option<Duration>) -> State {
        match delay {
            Delay::Batch(gather) => tokio::time::sleep(gather).await,
            Delay::Yield(turn) => {
                let is_known = |reference: &str, oid| self.puller.is_known(self.remote, &self.known, reference, oid);
                tokio::select! {
                    () = tokio::time::sleep(turn) => {}
                    () = self.notices.next(self.remote, self.puller.merger.config(), is_known) => return State::Connecting,
                }
            }
        }
        State::Waiting { pause }
    }

    async fn wait(&mut self, pause: Option<Duration>) -> State {
        let pushes = match self.last {
            Condition::Synced => self.remote.push_after_merge,
            Condition::NoBranch => self.remote.push_on_pull_failure,
            _ => false,
        };
        let echo = self.echo.map(|echo| echo.left(self.quiet()));
        // Without notifications, every commit starts an exchange.
        let is_coordinated = self.is_one_of_several() && self.notices.is_active();
        let location = self.notices.location().filter(|_| is_coordinated).cloned();
        let (puller, remote) = (self.puller, self.remote);
        let is_known = |reference: &str, oid| puller.is_known(remote, &self.known, reference, oid);
        tokio::select! {
            () = sleep_or_forever(pause.into_iter().chain(echo).min()) => {}
            () = self.notices.next(remote, puller.merger.config(), is_known) => {}
            // A new commit here is to be pushed.
            () = puller.committed(remote, location.as_ref(), &mut self.heads), if pushes => {}
        }
        State::Connecting
    }

    /// Returns where the remote is now.
    fn location(&self) -> impl Future<Output = Option<Location>> + use<> {
        let (remote, repository) = (self.remote.clone(), self.puller.merger.config().repository.clone());
        blocking(move || remote.location(&repository).ok())
    }

    fn quiet(&self) -> Duration {
        self.puller.config.echoes_after.unwrap_or_default()
    }

    fn is_one_of_several(&self) -> bool {
        self.puller.config.remotes.len() > 1
    }
}

async fn sleep_or_forever(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

impl Puller {
    /// Returns whether a reference of the remote at this commit needs no exchange. Records it if a followed branch is at a commit
    /// that we pushed: the other server has then merged what we have, and has nothing else.
    fn is_known(&self, remote: &Remote, known: &Known, reference: &str, oid: Oid) -> bool {
        let is_own = reference == self.merger.config().data_reference;
        if known.has(oid) || is_own && oid == self.merger.head().data {
            return true;
        }
        let is_ours = !is_own && self.pushed.lock().has(oid);
        if is_ours {
            self.statuses.change(&remote.name, |status| {
                (status.seen, status.merged) = (Some(oid.to_string()), Some(oid.to_string()));
            });
        }
        is_ours
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

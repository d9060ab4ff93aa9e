//! One exchange with a remote, as a state machine: fetch, merge, push; repairs, and repetitions after lost races.
//!
//! ```text
//! Fetching ──> Merging ──> Pushing ──> Settled
//!     │           │           │
//!     ├───────────┴──> Failed ┴──> Settled, or again: Fetching, Refetching, Deepening
//!     └──> Locating ──> Pushing (a pull that failed, with pushes regardless of failures)
//! ```
//!
//! Each state has one function, which returns the next state. An exchange can be dropped at any time: whatever it has merged is
//! in the journal, and the next exchange continues.

use std::collections::VecDeque;
use std::time::Instant;

use git2::Oid;
use gitcd_core::error::chain;
use gitcd_core::scope::Scope;
use gitcd_merge::Policy;
use gitcd_repo::boundary::Boundary;
use gitcd_repo::git_dir;

use super::memory::{HistoryLinks, Memory};
use super::{PullError, Puller};
use crate::fairness::Exchanged;
use crate::git_worker::blocking;
use crate::merger::{DryRun, HistoryLink, MergeOptions, MergeOutcome};
use crate::plan::Provenance;
use crate::remote::{Fetched, Link, Remote, RemoteError};
use crate::restore::{MAX_RESTORED, Restored, restore};
use crate::status::Condition;

/// Attempts of an exchange that loses races before it backs off.
const RACES: usize = 8;
/// By how many commits a shallow repository is deepened, one step after the other; `None`: by the whole history.
const DEEPENINGS: [Option<usize>; 4] = [Some(64), Some(1024), Some(16_384), None];

/// The state of an exchange.
#[derive(Debug)]
enum State {
    /// Reads the remote's references, and fetches what is new.
    Fetching,
    /// Merges the fetched commits, one after the other.
    Merging { there: Fetched, commits: VecDeque<(Origin, Oid)> },
    /// Looks where our branch is on the remote, to push it although the pull failed.
    Locating { failure: PullError },
    /// Pushes our branch.
    Pushing { there: Fetched, failure: Option<PullError> },
    /// Decides whether a failed exchange is repeated, and what is repaired before.
    Failed(PullError),
    /// Fetches everything again, because an object is missing.
    Refetching(PullError),
    /// Fetches more history into a shallow repository.
    Deepening { failure: PullError, by: Option<usize> },
    /// The exchange is over.
    Settled(Result<(), PullError>),
}

/// The branch of the remote from which a commit comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The followed branch.
    Followed,
    /// Our own branch: external commits, or commits of a server that served it before.
    Own,
}

/// Whether a push that only moves our branch on the remote to the remote's own commits is deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echoes {
    Push,
    Defer,
}

/// What was tried since the last lost race.
#[derive(Clone, Copy, Debug, Default)]
struct Repairs {
    /// Whether everything was fetched again since the last deepening.
    refetched: bool,
    /// How often the repository was deepened.
    deepened: usize,
}

/// An exchange in progress.
pub(super) struct Exchange<'p> {
    puller: &'p Puller,
    remote: &'p Remote,
    link: Link,
    memory: &'p mut Memory,
    echoes: Echoes,
    races: usize,
    /// How many removed commits were restored.
    restored: usize,
    repairs: Repairs,
    exchanged: Exchanged,
}

impl<'p> Exchange<'p> {
    pub(super) fn new(
        puller: &'p Puller,
        remote: &'p Remote,
        link: Link,
        memory: &'p mut Memory,
        echoes: Echoes,
    ) -> Self {
        let (repairs, exchanged) = (Repairs::default(), Exchanged::default());
        Self { puller, remote, link, memory, echoes, races: 0, restored: 0, repairs, exchanged }
    }

    /// Runs until the exchange is over.
    pub(super) async fn run(mut self) -> (Exchanged, Result<(), PullError>) {
        let mut state = State::Fetching;
        loop {
            state = match state {
                State::Fetching => self.fetch().await,
                State::Merging { there, commits } => self.merge(there, commits).await,
                State::Locating { failure } => self.locate(failure).await,
                State::Pushing { there, failure } => self.push(there, failure).await,
                State::Failed(error) => self.recover(error).await,
                State::Refetching(failure) => self.refetch(failure).await,
                State::Deepening { failure, by } => self.deepen(failure, by).await,
                State::Settled(outcome) => return (self.exchanged, outcome),
            };
        }
    }

    async fn fetch(&mut self) -> State {
        let (wanted, config, link) = (self.remote.clone(), self.puller.merger.config().clone(), self.link.clone());
        let fetched =
            blocking(move || if wanted.fetch { wanted.fetch(&config, &link) } else { wanted.known(&config) }).await;
        let there = match fetched {
            Ok(there) => there,
            Err(error) => return self.pull_failed(error.into()),
        };
        self.puller.statuses.change(&self.remote.name, |status| {
            status.fetched_bytes += there.bytes;
            status.seen = there.theirs.map(|oid| oid.to_string());
        });
        self.exchanged.found.extend(there.theirs.into_iter().chain(there.own));
        // The push that follows creates our own branch there.
        if there.theirs.is_none() && !(self.remote.push_after_merge && self.follows_own_branch()) {
            return self.pull_failed(self.no_branch().into());
        }
        let mut commits = VecDeque::new();
        commits.extend(
            there.theirs.filter(|oid| self.memory.contained.theirs != Some(*oid)).map(|oid| (Origin::Followed, oid)),
        );
        let is_new = |own: &Oid| Some(*own) != there.theirs && Some(*own) != self.memory.contained.own;
        commits.extend(there.own.filter(is_new).map(|oid| (Origin::Own, oid)));
        State::Merging { there, commits }
    }

    async fn merge(&mut self, there: Fetched, mut commits: VecDeque<(Origin, Oid)>) -> State {
        if let Some((origin, commit)) = commits.pop_front() {
            return match self.merge_one(origin, commit).await {
                Ok(()) => State::Merging { there, commits },
                Err(error) => self.pull_failed(error),
            };
        }
        let head = self.puller.merger.head();
        if self.echoes == Echoes::Defer && self.is_echo(&there, head.data) {
            self.exchanged.echo = true;
            self.exchanged.handled = Some(head);
        } else if self.remote.push_after_merge {
            return State::Pushing { there, failure: None };
        }
        State::Settled(Ok(()))
    }

    async fn locate(&mut self, failure: PullError) -> State {
        let (wanted, config, link) = (self.remote.clone(), self.puller.merger.config().clone(), self.link.clone());
        match blocking(move || wanted.own(&config, &link).or_else(|_| wanted.known(&config))).await {
            Ok(there) => State::Pushing { there, failure: Some(failure) },
            Err(error) => State::Failed(error.into()),
        }
    }

    async fn push(&mut self, there: Fetched, failure: Option<PullError>) -> State {
        let pushed = self.puller.push(self.remote, &self.link, there).await;
        match (failure, pushed) {
            (None, Ok(pushed)) => {
                (self.exchanged.pushed, self.exchanged.handled) = (pushed.moved_to, Some(pushed.head));
                State::Settled(Ok(()))
            }
            (None, Err(error)) => State::Failed(error),
            // The remote is reachable, so the push has to succeed, or its error is reported.
            (Some(failure), Err(error)) if failure.condition() == Condition::NoBranch => State::Failed(error),
            (Some(failure), _) => State::Failed(failure),
        }
    }

    /// Returns the state after a pull that failed before its push.
    fn pull_failed(&self, failure: PullError) -> State {
        if self.remote.push_on_pull_failure { State::Locating { failure } } else { State::Failed(failure) }
    }

    async fn recover(&mut self, error: PullError) -> State {
        if error.condition() == Condition::Raced {
            self.races += 1;
            self.repairs = Repairs::default();
            return if self.races < RACES { State::Fetching } else { State::Settled(Err(error)) };
        }
        let repository = git_dir(&self.puller.merger.config().repository);
        if let Some(oid) = error.cut_at()
            && self.restored < MAX_RESTORED
        {
            // The merge restored those that are here.
            self.restored += 1;
            return match blocking(move || restore(&repository, oid)).await {
                Restored::Yes => State::Fetching,
                Restored::Missing if !self.repairs.refetched => State::Refetching(error),
                Restored::Missing | Restored::No => State::Settled(Err(error)),
            };
        }
        let looked = move || {
            // What gitcd cut is not fetched again. After another program moved the boundary, this is a clone with a limited depth.
            let is_cut = Boundary::read(&repository).map_or(true, |boundary| boundary.cut().is_some());
            repository.join("shallow").exists() && !is_cut
        };
        let is_limited = blocking(looked).await;
        match DEEPENINGS.get(self.repairs.deepened) {
            _ if error.lacks_objects() && !is_limited && !self.repairs.refetched => State::Refetching(error),
            Some(by) if error.lacks_history() && is_limited => State::Deepening { failure: error, by: *by },
            _ => State::Settled(Err(error)),
        }
    }

    async fn refetch(&mut self, failure: PullError) -> State {
        let (wanted, config, link) = (self.remote.clone(), self.puller.merger.config().clone(), self.link.clone());
        tracing::warn!(remote = wanted.name, error = chain(&failure), "the fetch was incomplete; fetching again");
        self.repairs.refetched = true;
        match blocking(move || wanted.fetch_again(&config, &link)).await {
            Ok(bytes) => {
                self.puller.statuses.change(&self.remote.name, |status| status.fetched_bytes += bytes);
                State::Fetching
            }
            Err(error) => State::Failed(error.into()),
        }
    }

    async fn deepen(&mut self, failure: PullError, by: Option<usize>) -> State {
        let (wanted, config) = (self.remote.clone(), self.puller.merger.config().clone());
        self.repairs = Repairs { refetched: false, deepened: self.repairs.deepened + 1 };
        match blocking(move || wanted.deepen(&config, by)).await {
            Ok(true) => {
                tracing::info!(
                    remote = self.remote.name,
                    commits = by,
                    "a merge needs more history; deepened the shallow repository"
                );
                State::Fetching
            }
            Ok(false) => State::Settled(Err(failure)),
            Err(error) => State::Failed(error.into()),
        }
    }

    /// Returns whether servers that follow the branch push to it, too.
    fn follows_own_branch(&self) -> bool {
        self.remote.data_reference == self.puller.merger.config().data_reference
    }

    /// Returns whether a push would only move our branch on the remote to a commit that another branch there has.
    fn is_echo(&self, there: &Fetched, data: Oid) -> bool {
        self.remote.push_after_merge
            && !self.follows_own_branch()
            && there.theirs == Some(data)
            && there.own.is_some_and(|own| own != data)
    }

    fn no_branch(&self) -> RemoteError {
        let reference = &self.remote.data_reference;
        let problem = if self.remote.fetch {
            format!("it has no {reference}: push it there, or name another one with --remote-data-reference-names")
        } else {
            let here = self.remote.tracking(reference);
            format!("there is no {here}: with --no-fetches, another program must fetch {reference} to it")
        };
        RemoteError::new(&self.remote.name, Condition::NoBranch, problem)
    }

    fn options(&self, origin: Origin, commit: Oid) -> MergeOptions {
        let (scope, policy, may_defer) = match origin {
            Origin::Followed => (self.remote.scope.clone(), self.remote.policy, self.memory.links.may_defer(commit)),
            Origin::Own => (Scope::default(), Policy::Later, false),
        };
        let is_pushed_on_top = origin == Origin::Own || self.remote.push_after_merge && self.follows_own_branch();
        MergeOptions {
            policy,
            scope,
            fast_forward: self.remote.fast_forward,
            impatient: !may_defer,
            history_link: if is_pushed_on_top { HistoryLink::ToPush } else { HistoryLink::WithChanges },
            on_top_of: None,
            strict: false,
            dry_run: DryRun::Never,
            provenance: Provenance::ByMessage,
            by: format!("merge of {}", self.remote.name).into(),
        }
    }

    /// Merges a commit, or leaves its history link to the other side.
    async fn merge_one(&mut self, origin: Origin, commit: Oid) -> Result<(), PullError> {
        let options = self.options(origin, commit);
        let started = Instant::now();
        let outcome = self.puller.merger.merge(commit, &options).await?;
        self.exchanged.brought |= !matches!(outcome, MergeOutcome::Contained | MergeOutcome::Refused(_));
        // A merge alone does not prove it: what could not be read came in as a commit of ours.
        let contained = matches!(outcome, MergeOutcome::Contained).then_some(commit);
        let mut add = HistoryLinks::Add;
        let (links, reference) = match origin {
            Origin::Followed => {
                self.memory.contained.theirs = contained;
                (&mut self.memory.links, &self.remote.data_reference)
            }
            Origin::Own => {
                self.memory.contained.own = contained;
                (&mut add, &self.puller.merger.config().data_reference)
            }
        };
        match &outcome {
            MergeOutcome::Deferred => links.defer(commit),
            _ => links.settle(),
        }
        let (statuses, merger, name) = (&self.puller.statuses, &self.puller.merger, &self.remote.name);
        match outcome {
            MergeOutcome::Moved | MergeOutcome::Deferred => {}
            MergeOutcome::Refused(rejected) => {
                statuses.settle_rejected(merger, name, reference, commit, &rejected).await;
            }
            MergeOutcome::Contained => statuses.settle_rejected(merger, name, reference, commit, &[]).await,
            MergeOutcome::NothingNew => {
                statuses.settle_rejected(merger, name, reference, commit, &[]).await;
                statuses.change(name, |status| status.merged = Some(commit.to_string()));
            }
            MergeOutcome::Done { keys, conflicts, rejected } => {
                let count = conflicts.count;
                tracing::debug!(remote = name, theirs = %commit, keys, conflicts = count, "merged");
                for file in &rejected {
                    tracing::warn!(remote = name, path = file.path, reason = file.reason, "rejected a file");
                }
                let took = started.elapsed().as_secs_f64();
                statuses.settle_rejected(merger, name, reference, commit, &rejected).await;
                statuses.change(name, |status| {
                    status.merge_seconds += took;
                    status.record_merge(commit, &conflicts);
                });
            }
        }
        Ok(())
    }
}

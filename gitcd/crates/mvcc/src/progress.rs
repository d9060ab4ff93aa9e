//! Progress of the commits behind the writes, and requests to the committer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::revision::Revision;

use super::{Store, merge, writer};

/// State shared by the writer, the committer and those who wait for commits.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) committed: Revision,
    /// Merges that are not in Git yet, oldest first.
    pub(super) merges: VecDeque<Arc<merge::Merge>>,
    /// Deferred history links: other branches make them, unless something is written here first.
    pub(super) left: Option<merge::DeferredLinks>,
    /// A commit was requested.
    hurry: bool,
    /// What the committer waits for besides writes has changed.
    nudged: bool,
    /// A pause of commits was requested until this time.
    held: Option<Instant>,
    /// The store has stopped: no more writes will come.
    pub(super) stopped: bool,
}

/// Length of a requested pause: what stock Git takes to fetch, rebase and push, with some margin.
const HOLD: Duration = Duration::from_secs(2);

impl Progress {
    pub(super) fn new(committed: Revision, merges: Vec<merge::Merge>) -> Self {
        Self { committed, merges: merges.into_iter().map(Arc::new).collect(), ..Self::default() }
    }
}

impl Store {
    /// Requests an immediate commit of everything written so far.
    pub fn hurry(&self) {
        self.progress.lock().hurry = true;
        self.published.notify_all();
    }

    /// Wakes the committer, which waits for something besides writes.
    pub fn nudge(&self) {
        self.progress.lock().nudged = true;
        self.published.notify_all();
    }

    /// Pauses commits for a moment, since a client has fetched the branch and may be about to push. Repeated requests pause half
    /// of the time at most, so that commits continue; merges and [requested commits](Self::hurry) do not wait.
    pub fn hold(&self) {
        let now = Instant::now();
        let mut progress = self.progress.lock();
        if progress.held.is_none_or(|until| now >= until + HOLD) {
            progress.held = Some(now + HOLD);
        }
    }

    /// Returns the time until which commits are paused, if a pause was requested.
    pub fn held(&self) -> Option<Instant> {
        self.progress.lock().held
    }

    /// Returns whether a commit was requested since the last call.
    pub fn take_hurry(&self) -> bool {
        std::mem::take(&mut self.progress.lock().hurry)
    }

    /// Waits until the store stops or `until` is reached.
    pub fn wait_for_stop(&self, until: Instant) {
        let mut progress = self.progress.lock();
        while !progress.stopped && !self.published.wait_until(&mut progress, until).timed_out() {}
    }

    /// Records what is in Git.
    pub fn committed(&self, revision: Revision, metadata: [u8; 20]) {
        self.progress.lock().committed = revision;
        // The journal records it with the next write; if the queue is full, the next commit will do.
        let _ = self.commands.try_send(writer::Command::Committed { revision, metadata });
    }

    /// Records that nothing up to this revision needs to be in Git.
    pub fn advance_committed(&self, revision: Revision) {
        let mut progress = self.progress.lock();
        progress.committed = progress.committed.max(revision);
    }

    /// Returns the last revision in Git.
    pub fn committed_revision(&self) -> Revision {
        self.progress.lock().committed
    }

    /// Waits until there are durable writes above `after`, `until` is reached, the store stops, or the committer is called.
    /// Returns the durable revision and whether the store has stopped.
    pub fn wait_for_writes(&self, after: Revision, until: Option<Instant>) -> (Revision, bool) {
        let mut progress = self.progress.lock();
        loop {
            let revision = self.revision();
            let is_called = progress.stopped || progress.hurry || std::mem::take(&mut progress.nudged);
            if revision > after || is_called || !progress.merges.is_empty() {
                return (revision, progress.stopped);
            }
            match until {
                None => self.published.wait(&mut progress),
                Some(until) => {
                    if self.published.wait_until(&mut progress, until).timed_out() {
                        return (self.revision(), progress.stopped);
                    }
                }
            }
        }
    }
}

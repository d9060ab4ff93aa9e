//! How far the commits are behind the writes, and who waits for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::revision::Revision;

use super::{Store, merge, writer};

/// What the writer waits for and what waits for the writer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) committed: Revision,
    /// Merges that are not in Git yet, oldest first.
    pub(super) merges: VecDeque<Arc<merge::Merge>>,
    /// What other branches are to join, unless something is written here first.
    pub(super) left: Option<merge::Left>,
    /// Somebody waits for a commit.
    hurry: bool,
    /// Somebody would rather have none before then.
    held: Option<Instant>,
    /// The writer has ended: nothing more will come.
    pub(super) stopped: bool,
}

/// How long commits wait for somebody who may be about to push: what stock Git takes to fetch, rebase and push, with some room.
const HOLD: Duration = Duration::from_secs(2);

impl Progress {
    pub(super) fn new(committed: Revision, merges: Vec<merge::Merge>) -> Self {
        Self { committed, merges: merges.into_iter().map(Arc::new).collect(), ..Self::default() }
    }
}

impl Store {
    /// Asks for a commit of everything written so far, now.
    pub fn hurry(&self) {
        self.progress.lock().hurry = true;
        self.published.notify_all();
    }

    /// Asks for no commit for a moment: somebody has looked at the branch and may be about to push to it. Who asks again and again gets
    /// it half of the time, so that commits go on; merges and whoever is in a [hurry](Self::hurry) do not wait.
    pub fn hold(&self) {
        let now = Instant::now();
        let mut progress = self.progress.lock();
        if progress.held.is_none_or(|until| now >= until + HOLD) {
            progress.held = Some(now + HOLD);
        }
    }

    /// Until when there should be no commit, if anybody asked for that.
    pub fn held(&self) -> Option<Instant> {
        self.progress.lock().held
    }

    /// Whether somebody asked for a commit since this was last called.
    pub fn take_hurry(&self) -> bool {
        std::mem::take(&mut self.progress.lock().hurry)
    }

    /// Waits until the store stops or `until` is reached.
    pub fn wait_for_stop(&self, until: Instant) {
        let mut progress = self.progress.lock();
        while !progress.stopped && !self.published.wait_until(&mut progress, until).timed_out() {}
    }

    /// Tells the store what is in Git.
    pub fn committed(&self, revision: Revision, metadata: [u8; 20]) {
        self.progress.lock().committed = revision;
        // The journal remembers it with the next write; if the queue is full, the next commit will do.
        let _ = self.commands.try_send(writer::Command::Committed { revision, metadata });
    }

    /// Nothing up to here needs to be in Git.
    pub fn advance_committed(&self, revision: Revision) {
        let mut progress = self.progress.lock();
        progress.committed = progress.committed.max(revision);
    }

    /// Everything up to here is in Git.
    pub fn committed_revision(&self) -> Revision {
        self.progress.lock().committed
    }

    /// Waits until there are durable writes above `after`, `until` is reached, or the store stops.
    /// Returns the durable revision and whether the store has stopped.
    pub fn wait_for_writes(&self, after: Revision, until: Option<Instant>) -> (Revision, bool) {
        let mut progress = self.progress.lock();
        loop {
            let revision = self.revision();
            if revision > after || progress.stopped || progress.hurry || !progress.merges.is_empty() {
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

//! The thread that watches a repository.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use git2::Oid;
use gitcd_core::error::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

use super::shared::Watched;
use super::{BURST, DEAF_LOOK_EVERY, LOOK_EVERY, Notifier, QUIET, RETRY, changed_names};
use crate::refs::{Listing, RefError, Refs};

/// The dirty set: what has to be reread.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DirtySet {
    pub(super) files: BTreeSet<String>,
    pub(super) folders: BTreeSet<String>,
    pub(super) packed: bool,
    pub(super) everything: bool,
}

impl DirtySet {
    fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

pub(super) struct Follower {
    refs: Refs,
    listing: Listing,
    /// The references of the listing.
    found: BTreeMap<String, Oid>,
    notifier: Option<Notifier>,
    watched: Arc<Watched>,
    failures: watch::Sender<Option<String>>,
    /// When to repeat a failed read, and after which pause.
    retry: Option<(Instant, Duration)>,
}

impl Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower").field("refs", &self.refs).finish_non_exhaustive()
    }
}

impl Follower {
    /// Returns the thread's state, with what was `read` before it is started.
    pub(super) fn new(
        refs: Refs,
        read: (Listing, BTreeMap<String, Oid>),
        notifier: Option<Notifier>,
        failures: watch::Sender<Option<String>>,
        watched: Arc<Watched>,
    ) -> Self {
        let (listing, found) = read;
        Self { refs, listing, found, notifier, watched, failures, retry: None }
    }

    /// Watches until no watcher is left, or the repository is removed.
    pub(super) fn run(mut self, woken: &UnixStream) {
        let every = if self.notifier.is_some() { LOOK_EVERY } else { DEAF_LOOK_EVERY };
        let mut next_look = Instant::now() + every;
        loop {
            let mut doubt = DirtySet::default();
            let due = self.retry.map_or(next_look, |(at, _)| at.min(next_look));
            self.wait(woken, due.saturating_duration_since(Instant::now()));
            if (&*woken).read(&mut [0; 64]).is_ok() {
                doubt.everything = true;
            }
            if self.watched.is_unused() {
                return;
            }
            self.read_events(&mut doubt);
            let burst_end = Instant::now() + BURST;
            while doubt.is_any() && Instant::now() < burst_end && self.wait_for_more() {
                self.read_events(&mut doubt);
            }
            if Instant::now() >= due {
                doubt.everything = true;
            }
            // What the failed read has left out is not known.
            doubt.everything |= doubt.is_any() && self.retry.is_some();
            if doubt.everything {
                next_look = Instant::now() + every;
            }
            if !doubt.is_any() {
                continue;
            }
            match self.read(&doubt) {
                Ok(()) => self.recovered(),
                Err(error) if self.is_gone() => {
                    tracing::warn!(error = chain(&error), "stopped following references: the repository was removed");
                    return;
                }
                Err(error) => {
                    self.failed(&error);
                    continue;
                }
            }
            let found = self.listing.resolved();
            self.watched.publish(&found, &changed_names(&self.found, &found));
            self.found = found;
        }
    }

    /// Returns whether the repository was removed. Any other failure may pass, such as a process without free file descriptors.
    fn is_gone(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound};
        let found = self.refs.check_root();
        matches!(found, Err(RefError::Io { source, .. }) if matches!(source.kind(), NotFound | NotADirectory))
    }

    fn failed(&mut self, error: &RefError) {
        let [first, last] = RETRY;
        let pause = self.retry.map_or(first, |(_, before)| (before * 2).min(last));
        if self.retry.is_none() {
            tracing::error!(error = chain(error), "cannot read references; retrying");
        }
        self.retry = Some((Instant::now() + pause, pause));
        self.failures.send_replace(Some(chain(error)));
    }

    fn recovered(&mut self) {
        if self.retry.take().is_some() {
            tracing::info!("references can be read again");
            self.failures.send_replace(None);
        }
    }

    /// Waits for a notification, a trigger, or the end of the time.
    fn wait(&self, woken: &UnixStream, time: Duration) {
        let mut sources = vec![PollFd::new(woken, PollFlags::IN)];
        sources.extend(self.notifier.as_ref().map(|notifier| PollFd::new(notifier, PollFlags::IN)));
        // An interruption counts as a trigger.
        let _woken = poll(&mut sources, Timespec::try_from(time).ok().as_ref());
    }

    fn wait_for_more(&self) -> bool {
        let Some(notifier) = &self.notifier else { return false };
        let mut sources = [PollFd::new(notifier, PollFlags::IN)];
        matches!(poll(&mut sources, Timespec::try_from(QUIET).ok().as_ref()), Ok(1..))
    }

    fn read_events(&mut self, doubt: &mut DirtySet) {
        if let Some(notifier) = &mut self.notifier {
            notifier.read_events(doubt);
        }
    }

    /// Rereads the dirty set. Files before the packed ones: `git pack-refs` writes the packed file before it deletes the others.
    fn read(&mut self, doubt: &DirtySet) -> Result<(), RefError> {
        if doubt.everything {
            if let Some(notifier) = &mut self.notifier {
                notifier.watch_all();
            }
            self.refs.check_root()?;
            return self.listing.read_all(&self.refs);
        }
        for folder in &doubt.folders {
            self.listing.read_folder(&self.refs, folder)?;
        }
        for file in &doubt.files {
            // Many processes may watch a repository in which each wants a few of many references.
            if self.watched.wants(file) || self.listing.has_link_to(file) {
                self.listing.read_file(&self.refs, file)?;
            }
        }
        if doubt.packed { self.listing.read_packed(&self.refs) } else { Ok(()) }
    }
}

impl Drop for Follower {
    /// After a panic, too.
    fn drop(&mut self) {
        self.watched.end();
    }
}

//! Watches the references of a repository on the local file system, whichever program moves them.
//!
//! A thread waits for notifications of changed files, rereads what is in doubt and compares. It reports states, not events: a
//! slow reader gets the difference between its last state and the current one, and never a queue. Changes within a few
//! milliseconds are reported together. Where the system sends no notifications (on a network file system, or with too many
//! watches), the thread polls: every ten seconds, and several times a second if there are no notifications at all.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use gitcd_repo::refs::Refs;
//! use gitcd_repo::watch::RefWatcher;
//!
//! let folder = tempfile::tempdir()?;
//! git2::Repository::init_bare(folder.path())?;
//! let watcher = RefWatcher::new(folder.path(), |name| name.starts_with("refs/heads/"))?;
//! let mut changes = watcher.changes();
//!
//! let commit = git2::Oid::from_str("c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00")?;
//! Refs::open(folder.path())?.update("refs/heads/main", commit, None)?;
//! let seen = changes.next().await.expect("the repository is there");
//! assert_eq!((seen[0].reference.as_str(), seen[0].new), ("refs/heads/main", Some(commit)));
//! # Ok(()) }
//! ```

mod follower;
#[cfg(target_os = "linux")]
mod inotify;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use git2::Oid;
use tokio::sync::watch;

use super::refs::{RefError, Refs};

#[cfg(not(target_os = "linux"))]
use self::deaf::Notifier;
#[cfg(target_os = "linux")]
use self::inotify::Notifier;
use self::shared::Subscription;

/// Poll interval with notifications.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Poll interval without notifications.
const DEAF_LOOK_EVERY: Duration = Duration::from_millis(200);
/// First and longest pause before a failed read is repeated; the pause doubles each time.
const RETRY: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// A burst of changes ends when there are no notifications for this time …
const QUIET: Duration = Duration::from_millis(2);
/// … or after this time in any case.
const BURST: Duration = Duration::from_millis(20);

/// References and their targets.
pub type Snapshot = Arc<BTreeMap<String, Oid>>;

/// A change of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefChange {
    /// Its full name.
    pub reference: String,
    /// Its former target; `None`: it did not exist.
    pub old: Option<Oid>,
    /// Its new target; `None`: it no longer exists.
    pub new: Option<Oid>,
}

/// Why references cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The references cannot be read.
    #[error(transparent)]
    Refs(#[from] RefError),
    /// The system cannot create a thread or a pipe.
    #[error("cannot follow the references of {path:?}")]
    System {
        /// The repository.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Watches references until it and all of its [`Changes`] are dropped.
#[derive(Clone, Debug)]
pub struct RefWatcher {
    latest: watch::Receiver<Snapshot>,
    subscription: Arc<Subscription>,
}

impl RefWatcher {
    /// Watches the `wanted` references of the repository at `git_dir`. Blocks until it has read all references. All watchers of a
    /// repository in this process share a thread, which costs a watch of the system for every folder of references; `wanted` is
    /// called on it.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn new(git_dir: &Path, wanted: impl Fn(&str) -> bool + Send + 'static) -> Result<Self, WatchError> {
        shared::subscribe(Refs::open(git_dir)?, Box::new(wanted))
    }

    /// Returns the last known references.
    pub fn latest(&self) -> Snapshot {
        self.latest.borrow().clone()
    }

    /// Returns a reader of the changes from now on, compared with the current [`RefWatcher::latest`].
    pub fn changes(&self) -> Changes {
        let mut latest = self.latest.clone();
        let seen = latest.borrow_and_update().clone();
        Changes { latest, seen, _subscription: self.subscription.clone() }
    }

    /// Returns why the references cannot be read at the moment; `None` while they can. The watcher repeats the read until it
    /// succeeds, and then reports all changes.
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.subscription.watched.failure()
    }

    /// Returns whether the watcher is running; it stops when the repository is removed.
    pub fn is_alive(&self) -> bool {
        self.latest.has_changed().is_ok()
    }

    /// Triggers a read, after a change that the system may not report.
    pub fn look(&self) {
        self.subscription.watched.look();
    }
}

/// A reader of changes.
#[derive(Debug)]
pub struct Changes {
    latest: watch::Receiver<Snapshot>,
    seen: Snapshot,
    /// The thread runs while there are readers.
    _subscription: Arc<Subscription>,
}

impl Changes {
    /// Returns the last references that this reader has seen.
    pub fn seen(&self) -> &Snapshot {
        &self.seen
    }

    /// Waits for the next changes, sorted by name: from [`Changes::seen`] to the latest state. Nothing is lost if the future is
    /// dropped. `None` if the references can no longer be watched, for example because the repository was removed.
    pub async fn next(&mut self) -> Option<Vec<RefChange>> {
        loop {
            self.latest.changed().await.ok()?;
            let latest = self.latest.borrow_and_update().clone();
            let changes = difference(&self.seen, &latest);
            self.seen = latest;
            if !changes.is_empty() {
                return Some(changes);
            }
        }
    }

    /// Returns the changes as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Vec<RefChange>> {
        futures::stream::unfold(self, async |mut changes| Some((changes.next().await?, changes)))
    }
}

fn difference(old: &BTreeMap<String, Oid>, new: &BTreeMap<String, Oid>) -> Vec<RefChange> {
    let change =
        |name: &String| RefChange { reference: name.clone(), old: old.get(name).copied(), new: new.get(name).copied() };
    changed_names(old, new).into_iter().map(change).collect()
}

/// Returns the names of the references that differ, sorted.
fn changed_names<'r>(old: &'r BTreeMap<String, Oid>, new: &'r BTreeMap<String, Oid>) -> Vec<&'r String> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    names.into_iter().filter(|name| old.get(*name) != new.get(*name)).collect()
}

/// Which references to watch.
type Wanted = dyn Fn(&str) -> bool + Send;

/// For systems whose notifications are not supported.
#[cfg(not(target_os = "linux"))]
mod deaf {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::path::Path;

    use super::follower::DirtySet;

    #[derive(Debug)]
    pub(super) enum Notifier {}

    impl Notifier {
        pub(super) fn new(_root: &Path) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(super) fn watch_all(&mut self) {
            match *self {}
        }

        pub(super) fn read_events(&mut self, _doubt: &mut DirtySet) {
            match *self {}
        }
    }

    impl AsFd for Notifier {
        fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}

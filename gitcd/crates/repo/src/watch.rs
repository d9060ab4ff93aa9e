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

#[cfg(target_os = "linux")]
mod inotify;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use git2::Oid;
use gitcd_core::error::chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::watch;

use super::refs::{Listing, RefError, Refs};

#[cfg(not(target_os = "linux"))]
use self::deaf::Notifier;
#[cfg(target_os = "linux")]
use self::inotify::Notifier;

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
    failure: watch::Receiver<Option<String>>,
    wake: Arc<UnixStream>,
}

impl RefWatcher {
    /// Watches the `wanted` references of the repository at `git_dir`. Blocks until it has read them all. Costs a thread, and a
    /// watch of the system for every folder of references.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn new(git_dir: &Path, wanted: impl Fn(&str) -> bool + Send + 'static) -> Result<Self, WatchError> {
        let refs = Refs::open(git_dir)?;
        // Start the notifications first, so that changes during the first read are noticed.
        let notifier = Notifier::new(refs.root());
        Self::start(refs, notifier, Box::new(wanted))
    }

    fn start(refs: Refs, notifier: io::Result<Notifier>, wanted: Box<Wanted>) -> Result<Self, WatchError> {
        let path = refs.root().to_owned();
        let system = |source| WatchError::System { path: path.clone(), source };
        if let Err(error) = &notifier {
            tracing::warn!(%error, "the system reports no changes of references: polling for them");
        }
        let (failures, failure) = watch::channel(None);
        let mut follower =
            Follower { refs, listing: Listing::default(), notifier: notifier.ok(), wanted, failures, retry: None };
        follower.listing.read_all(&follower.refs)?;
        let (sender, latest) = watch::channel(follower.snapshot());
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        for end in [&wake, &woken] {
            end.set_nonblocking(true).map_err(system)?;
        }
        let thread = std::thread::Builder::new().name("references".to_owned());
        // The thread exits when the other end of the pair is closed.
        thread.spawn(move || follower.run(&woken, &sender)).map_err(system)?;
        Ok(Self { latest, failure, wake: Arc::new(wake) })
    }

    /// Returns the last known references.
    pub fn latest(&self) -> Snapshot {
        self.latest.borrow().clone()
    }

    /// Returns a reader of the changes from now on, compared with the current [`RefWatcher::latest`].
    pub fn changes(&self) -> Changes {
        let mut latest = self.latest.clone();
        let seen = latest.borrow_and_update().clone();
        Changes { latest, seen, _wake: self.wake.clone() }
    }

    /// Returns why the references cannot be read at the moment; `None` while they can. The watcher repeats the read until it
    /// succeeds, and then reports all changes.
    pub fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.clone()
    }

    /// Returns whether the watcher is running; it stops when the repository is removed.
    pub fn is_alive(&self) -> bool {
        self.latest.has_changed().is_ok()
    }

    /// Triggers a read, after a change that the system may not report.
    pub fn look(&self) {
        // A full pipe means that a read is pending.
        let _asked = (&*self.wake).write(&[0]);
    }
}

/// A reader of changes.
#[derive(Debug)]
pub struct Changes {
    latest: watch::Receiver<Snapshot>,
    seen: Snapshot,
    /// The thread runs while there are readers.
    _wake: Arc<UnixStream>,
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
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change =
        |name: &String| RefChange { reference: name.clone(), old: old.get(name).copied(), new: new.get(name).copied() };
    names.into_iter().map(change).filter(|change| change.old != change.new).collect()
}

/// Which references to watch.
type Wanted = dyn Fn(&str) -> bool + Send;

/// The dirty set: what has to be reread.
#[derive(Debug, Default, PartialEq, Eq)]
struct DirtySet {
    files: BTreeSet<String>,
    folders: BTreeSet<String>,
    packed: bool,
    everything: bool,
}

impl DirtySet {
    fn is_any(&self) -> bool {
        *self != Self::default()
    }
}

struct Follower {
    refs: Refs,
    listing: Listing,
    notifier: Option<Notifier>,
    wanted: Box<Wanted>,
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
    fn snapshot(&self) -> Snapshot {
        let mut references = self.listing.resolved();
        references.retain(|name, _| (self.wanted)(name));
        Arc::new(references)
    }

    fn run(mut self, woken: &UnixStream, sender: &watch::Sender<Snapshot>) {
        let every = if self.notifier.is_some() { LOOK_EVERY } else { DEAF_LOOK_EVERY };
        let mut next_look = Instant::now() + every;
        loop {
            let mut doubt = DirtySet::default();
            let due = self.retry.map_or(next_look, |(at, _)| at.min(next_look));
            self.wait(woken, due.saturating_duration_since(Instant::now()));
            match (&*woken).read(&mut [0; 64]) {
                Ok(0) => return,
                Ok(_) => doubt.everything = true,
                Err(_) => {}
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
            let found = self.snapshot();
            sender.send_if_modified(|latest| {
                let is_new = *latest != found;
                *latest = found;
                is_new
            });
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
            self.listing.read_file(&self.refs, file)?;
        }
        if doubt.packed { self.listing.read_packed(&self.refs) } else { Ok(()) }
    }
}

/// For systems whose notifications are not supported.
#[cfg(not(target_os = "linux"))]
mod deaf {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::path::Path;

    use super::DirtySet;

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

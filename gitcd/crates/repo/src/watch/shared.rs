//! One thread for all watchers of a repository in this process: a server that follows two hundred branches of one repository has
//! one thread, one set of notifications and one read for each change, not two hundred.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Weak};

use git2::Oid;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::follower::Follower;
use super::{Notifier, RefWatcher, Snapshot, Wanted, WatchError};
use crate::refs::{Listing, Refs};

/// The watched repositories of this process.
static WATCHED: LazyLock<Mutex<HashMap<Identity, Weak<Watched>>>> = LazyLock::new(Mutex::default);

/// What makes a folder the same one: another repository may get its path.
type Identity = (PathBuf, u64, u64);

/// A repository whose references a thread watches.
pub(super) struct Watched {
    subscribers: Mutex<Subscribers>,
    /// Why the references cannot be read at the moment.
    failure: watch::Receiver<Option<String>>,
    wake: UnixStream,
}

#[derive(Default)]
struct Subscribers {
    all: Vec<Subscriber>,
    next: u64,
    /// Whether the thread has ended, or is about to.
    is_over: bool,
}

struct Subscriber {
    number: u64,
    wanted: Box<Wanted>,
    latest: watch::Sender<Snapshot>,
    /// Whether it has not been compared with what the thread has read.
    is_new: bool,
}

impl Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched").field("subscribers", &self.subscribers.lock().all.len()).finish_non_exhaustive()
    }
}

/// A part in a watched repository; ends when dropped.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) watched: Arc<Watched>,
    number: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut subscribers = self.watched.subscribers.lock();
        subscribers.all.retain(|subscriber| subscriber.number != self.number);
        if subscribers.all.is_empty() {
            self.watched.look();
        }
    }
}

/// Returns a watcher of the `wanted` references, with the thread of another watcher if the repository has one.
pub(super) fn subscribe(refs: Refs, wanted: Box<Wanted>) -> Result<RefWatcher, WatchError> {
    let start_own = |refs: Refs, wanted| {
        // Start the notifications first, so that changes during the first read are noticed.
        let notifier = Notifier::new(refs.root());
        start(refs, notifier, wanted)
    };
    let Some(identity) = identity(&refs) else { return start_own(refs, wanted) };
    let found = WATCHED.lock().get(&identity).and_then(Weak::upgrade);
    let wanted = match found {
        Some(known) => match known.join(&refs, wanted)? {
            Ok(joined) => return Ok(joined),
            Err(wanted) => wanted,
        },
        None => wanted,
    };
    // Outside the lock: the disk may be slow. Two that start at once have a thread each.
    let watcher = start_own(refs, wanted)?;
    let mut all = WATCHED.lock();
    all.retain(|_, watched| watched.strong_count() > 0);
    all.insert(identity, Arc::downgrade(&watcher.subscription.watched));
    Ok(watcher)
}

/// Starts a thread for a repository; it polls without a notifier.
pub(super) fn start(refs: Refs, notifier: io::Result<Notifier>, wanted: Box<Wanted>) -> Result<RefWatcher, WatchError> {
    let path = refs.root().to_owned();
    let system = |source| WatchError::System { path: path.clone(), source };
    if let Err(error) = &notifier {
        tracing::warn!(%error, "the system reports no changes of references: polling for them");
    }
    let mut listing = Listing::default();
    listing.read_all(&refs)?;
    let found = listing.resolved();
    let (wake, woken) = UnixStream::pair().map_err(system)?;
    for end in [&wake, &woken] {
        end.set_nonblocking(true).map_err(system)?;
    }
    let (failures, failure) = watch::channel(None);
    let watched = Arc::new(Watched { subscribers: Mutex::default(), failure, wake });
    let first = watched.add(filtered(&found, &*wanted), wanted);
    // Nothing ends it before its thread is started.
    let first = first.map_err(|_| system(io::ErrorKind::Other.into()))?;
    let follower = Follower::new(refs, (listing, found), notifier.ok(), failures, watched);
    let thread = std::thread::Builder::new().name("references".to_owned());
    thread.spawn(move || follower.run(&woken)).map_err(system)?;
    Ok(first)
}

fn identity(refs: &Refs) -> Option<Identity> {
    let found = fs::metadata(refs.root()).ok()?;
    Some((refs.root().to_owned(), found.dev(), found.ino()))
}

fn filtered(found: &BTreeMap<String, Oid>, wanted: &Wanted) -> Snapshot {
    Arc::new(found.iter().filter(|(name, _)| wanted(name)).map(|(name, oid)| (name.clone(), *oid)).collect())
}

impl Watched {
    /// Adds a watcher, unless the thread has ended, which returns the closure.
    fn join(self: &Arc<Self>, refs: &Refs, wanted: Box<Wanted>) -> Result<Result<RefWatcher, Box<Wanted>>, WatchError> {
        let found = refs.list()?;
        let added = self.add(filtered(&found, &*wanted), wanted);
        // Changes since the read were noticed before the watcher was there: the thread reads again.
        self.look();
        Ok(added)
    }

    fn add(self: &Arc<Self>, found: Snapshot, wanted: Box<Wanted>) -> Result<RefWatcher, Box<Wanted>> {
        let mut subscribers = self.subscribers.lock();
        if subscribers.is_over {
            return Err(wanted);
        }
        let number = subscribers.next;
        subscribers.next += 1;
        let (sender, latest) = watch::channel(found);
        subscribers.all.push(Subscriber { number, wanted, latest: sender, is_new: true });
        Ok(RefWatcher { latest, subscription: Arc::new(Subscription { watched: self.clone(), number }) })
    }

    pub(super) fn failure(&self) -> watch::Receiver<Option<String>> {
        self.failure.clone()
    }

    /// Makes the thread read everything.
    pub(super) fn look(&self) {
        // A full pipe means that a read is pending.
        let _asked = (&self.wake).write(&[0]);
    }

    /// Ends all watchers.
    pub(super) fn end(&self) {
        *self.subscribers.lock() = Subscribers { is_over: true, ..Subscribers::default() };
    }

    /// Returns whether no watcher is left; then none is added any more.
    pub(super) fn is_unused(&self) -> bool {
        let mut subscribers = self.subscribers.lock();
        subscribers.is_over |= subscribers.all.is_empty();
        subscribers.is_over
    }

    /// Returns whether a watcher wants this reference.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.subscribers.lock().all.iter().any(|subscriber| (subscriber.wanted)(name))
    }

    /// Reports what was `found` to the watchers that want one of the `changed` references.
    pub(super) fn publish(&self, found: &BTreeMap<String, Oid>, changed: &[&String]) {
        for Subscriber { wanted, latest, is_new, .. } in &mut self.subscribers.lock().all {
            if !std::mem::take(is_new) && !changed.iter().any(|name| wanted(name)) {
                continue;
            }
            let found = filtered(found, wanted);
            latest.send_if_modified(|latest| {
                let is_other = *latest != found;
                *latest = found;
                is_other
            });
        }
    }
}

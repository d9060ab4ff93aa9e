//! The writer lease: one writer at a time, by a reference on the remote.
//!
//! The reference points to the lease record ([`record`]). The holder renews the lease by moving the reference ([`renewer`]);
//! a server that sees it unchanged for the lease's duration may take it ([`terms`] decides, [`take`] acts). The new holder
//! continues from the remote's state of the branch ([`takeover`]); commits that the former writer had not pushed go to a side
//! branch ([`side`]). Format and safety argument: `docs/design/writer-lease.md`; for operators: `docs/one-writer.md`.

mod attempts;
mod chain;
mod mark;
mod record;
mod remote;
mod renewer;
mod side;
mod take;
pub mod takeover;
mod terms;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use gitcd_core::blocking::Panicked;
use gitcd_core::error::chain;
use gitcd_core::fence::Fence;
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::recovery::OpenError;
use gitcd_mvcc::Store;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use self::attempts::Attempts;
pub use self::record::LEASES;
pub use self::record::reference;
use self::remote::LeaseRemote;
use self::renewer::LeaseRenewer;
pub use self::side::is_side_branch;
pub use self::take::Acquisition;
use super::merger::Merger;
use super::remote::{Remote, RemoteError};
use super::status::{Condition, LeaseStatus, Statuses};
use crate::git_worker::blocking;

/// Settings of the writer lease.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long the lease lasts after its last renewal.
    pub duration: Duration,
    /// The remote that stores the lease.
    pub remote: Remote,
    /// Whether to serve reads from the writer's pushes while another server has the lease.
    pub hot_standby: bool,
}

/// The shortest duration; a shorter lease would expire between two renewals on a busy machine.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// The longest duration.
pub const LONGEST: Duration = record::LONGEST;

/// Why a writer lease cannot be acquired, or its branch cannot be taken over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// An exchange with the remote failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The lease reference does not point to a lease.
    #[error(
        "{reference} of remote {remote:?} is not a lease: {problem}; once no gitcd writes the branch, remove it with \
         `git push {remote} :{reference}`"
    )]
    Garbage {
        /// The remote.
        remote: String,
        /// The reference.
        reference: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A gitcd serves the branch in the remote's repository.
    #[error(
        "another gitcd serves {reference} in the repository of remote {remote:?}; a lease needs a remote that no gitcd serves, such as a \
         repository of `gitcd host`"
    )]
    Served {
        /// The remote.
        remote: String,
        /// The data reference.
        reference: String,
    },
    /// Another server took the lease during the takeover.
    #[error("the writer lease was taken over: {by}")]
    Lost {
        /// The new holder.
        by: String,
    },
    /// The branch cannot be opened.
    #[error(transparent)]
    Open(#[from] Box<OpenError>),
    /// Writes that are only in the local journal cannot be committed.
    #[error(
        "another server has written the branch since, and writes that only the local journal has cannot be committed; see the log"
    )]
    Uncommitted,
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A step panicked.
    #[error(transparent)]
    Internal(#[from] Panicked),
}

/// State that a lease shares with its renewer.
#[derive(Debug)]
struct Shared {
    gate: Arc<Fence>,
    epoch: u64,
    /// Counts how often the lease expired and was renewed again.
    reopened: watch::Sender<u64>,
    /// The new holder, once the lease is lost.
    lost: watch::Sender<Option<String>>,
    problem: Mutex<Problem>,
}

#[derive(Debug, Default)]
struct Problem {
    /// Why the last exchange with the remote failed.
    said: Option<(Condition, String)>,
    /// Whether the expiry of the lease was logged.
    is_logged: bool,
}

impl Shared {
    fn renewed(&self, was_closed: bool) {
        let problem = std::mem::take(&mut *self.problem.lock());
        if was_closed {
            tracing::info!(epoch = self.epoch, "the writer lease is held again: writes are accepted");
        } else if problem.said.is_some() {
            tracing::info!(epoch = self.epoch, "the writer lease is renewed again");
        }
    }

    fn failed(&self, error: &RemoteError) {
        let mut problem = self.problem.lock();
        let said = (error.condition, chain(error));
        if problem.said.as_ref() != Some(&said) {
            tracing::warn!(error = said.1, remaining = ?self.gate.remaining(), "cannot renew the writer lease; trying again");
            problem.said = Some(said);
        }
        if !self.gate.is_open() && !problem.is_logged {
            problem.is_logged = true;
            tracing::error!("the writer lease has expired: no write is acknowledged until it is renewed");
        }
    }

    fn lose(&self, by: String) {
        tracing::error!(epoch = self.epoch, by, "another server has taken the writer lease: this server stops writing");
        // The remote has answered, so its last error is obsolete.
        self.problem.lock().said = None;
        self.lost.send_replace(Some(by));
    }
}

/// A writer lease that this process has acquired, and may have lost since.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    upstream: LeaseRemote,
    record: record::Record,
    stop: watch::Sender<bool>,
    /// Locked by the task that renews.
    renewer: Arc<tokio::sync::Mutex<LeaseRenewer>>,
    task: Mutex<Option<JoinHandle<()>>>,
    supervisor: Supervisor,
    /// Whether all commits of this server are on the remote after the lease was lost, so that it can exit.
    saved: watch::Sender<bool>,
}

impl Lease {
    /// Starts to renew an acquired lease.
    fn keep(renewer: LeaseRenewer, supervisor: Supervisor) -> Arc<Self> {
        let (upstream, record, shared) = (renewer.upstream.clone(), renewer.record.clone(), renewer.shared.clone());
        let (stop, renewer) = (watch::Sender::new(false), Arc::new(tokio::sync::Mutex::new(renewer)));
        let (renewing, stopped, was_started) = (renewer.clone(), stop.subscribe(), Cell::new(false));
        let start = move || {
            // After a panic, a renewal is due.
            let pause = if was_started.replace(true) { Duration::ZERO } else { terms::renewal(record.duration) };
            let (renewer, stopped) = (renewing.clone(), stopped.clone());
            async move { renewer.lock().await.run(pause, stopped).await }
        };
        let task = supervisor.run(renewer::retry(record.duration), RENEWAL, stop.subscribe(), start);
        let task = tokio::spawn(task);
        let (task, saved) = (Mutex::new(Some(task)), watch::Sender::new(false));
        Arc::new(Self { shared, upstream, record, stop, renewer, task, supervisor, saved })
    }

    /// Returns the fence, which is open while the lease lasts.
    pub fn gate(&self) -> &Arc<Fence> {
        &self.shared.gate
    }

    /// Returns the new holder, if the lease is lost.
    pub fn lost(&self) -> Option<String> {
        self.shared.lost.borrow().clone()
    }

    /// Returns the status of the lease, for `/status` and metrics.
    pub fn status(&self) -> LeaseStatus {
        LeaseStatus {
            remote: self.upstream.remote.name.clone(),
            reference: reference(&self.upstream.config.data_reference),
            epoch: self.record.epoch,
            duration_seconds: self.record.duration.as_secs_f64(),
            remaining_seconds: self.gate().remaining().as_secs_f64(),
            error: self.lost().or_else(|| self.problem(&self.upstream.remote.name).map(|(_, said)| said)),
        }
    }

    /// Returns why the last exchange about the lease failed, if the lease is on this remote. Fetches are less frequent, and
    /// notice a failure later.
    pub fn problem(&self, remote: &str) -> Option<(Condition, String)> {
        self.shared.problem.lock().said.clone().filter(|_| self.upstream.remote.name == remote)
    }

    /// Returns the server's role: `writer` while the lease lasts, `suspended` after it has expired, `deposed` once it is lost or
    /// handed over.
    pub fn role(&self) -> &'static str {
        if self.gate().is_closed_for_good() {
            "deposed"
        } else if self.gate().is_open() {
            "writer"
        } else {
            "suspended"
        }
    }

    fn upstream(&self) -> &LeaseRemote {
        &self.upstream
    }

    /// Waits until the lease is lost and all commits of this server are on the remote. Returns the new holder.
    pub async fn deposed(&self) -> String {
        let (mut saved, lost) = (self.saved.subscribe(), self.shared.lost.subscribe());
        if saved.wait_for(|saved| *saved).await.is_err() {
            std::future::pending::<()>().await;
        }
        lost.borrow().clone().unwrap_or_default()
    }

    /// Works for the served branch until `stopped`: merges side branches, publishes writes in doubt when the lease is renewed
    /// after it had expired, saves unpushed writes when it is lost, and poisons the store when it expires because its renewal
    /// panics.
    pub async fn serve(&self, merger: &Merger, statuses: &Statuses, mut stopped: watch::Receiver<bool>) {
        let mut reopened = self.shared.reopened.subscribe();
        let mut lost = self.shared.lost.subscribe();
        let followed = stopped.clone();
        let sides = side::follow(self.upstream.clone(), merger, statuses, self.record.duration.max(LOOK), followed);
        let work = async {
            loop {
                let is_lost = tokio::select! {
                    _ = lost.wait_for(Option::is_some) => true,
                    _ = reopened.changed() => false,
                };
                if is_lost {
                    break;
                }
                merger.store().resume().await;
            }
            self.save(merger).await;
        };
        let renewal = self.watch_renewal(merger.store());
        tokio::select! {
            () = async { tokio::join!(work, sides, renewal); } => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    /// Poisons the store if the lease expires while its renewal waits to be started again after a panic. Then the lease is not
    /// renewed any more, so that another server can take it.
    async fn watch_renewal(&self, store: &Store) {
        while !self.gate().is_closed_for_good() {
            let failure = self.supervisor.failure(RENEWAL).filter(|_| !self.gate().is_open());
            if let Some(failure) = failure {
                store.poison(&format!(
                    "the renewal of the writer lease panicked ({failure}), and the lease expired before it was started again"
                ));
                self.stop.send_replace(true);
                return;
            }
            tokio::time::sleep(self.gate().remaining().max(renewer::retry(self.record.duration))).await;
        }
    }

    /// Commits everything and pushes what the remote lacks to a side branch; retries until that succeeds.
    async fn save(&self, merger: &Merger) {
        loop {
            let done = match merger.commit().await {
                Ok(head) => {
                    let upstream = self.upstream.clone();
                    let saved = blocking(move || side::save(&upstream, head.data)).await;
                    self.shared.problem.lock().said = saved.as_ref().err().map(|error| (error.condition, chain(error)));
                    saved.map_err(|error| chain(&error))
                }
                Err(error) => Err(chain(&error)),
            };
            match done {
                Ok(side) => {
                    if let Some(side) = side {
                        tracing::warn!(side, "unpushed writes are on a side branch");
                    } else {
                        tracing::info!("everything had been pushed before the lease was lost");
                    }
                    self.saved.send_replace(true);
                    return;
                }
                Err(error) => {
                    tracing::warn!(error, "cannot push the remaining writes; retrying");
                    tokio::time::sleep(LOOK).await;
                }
            }
        }
    }

    /// Pushes everything, then hands the lease over, so that other servers need not wait until it expires. Called when a
    /// server stops, after its branch is committed.
    pub async fn hand_over(&self) {
        if self.lost().is_none() {
            let upstream = self.upstream.clone();
            let pushed =
                renewer::within(LAST, &self.upstream.remote.name, move || takeover::push_last(&upstream)).await;
            if let Err(error) = pushed {
                // Other servers wait until the lease expires: this one may restart before, with the unpushed commits.
                tracing::warn!(
                    error = chain(&error),
                    "the last commits are not pushed, so the lease is not handed over"
                );
                self.end().await;
                return;
            }
            self.release().await;
        } else if !*self.saved.borrow() {
            let upstream = self.upstream.clone();
            match renewer::within(LAST, &self.upstream.remote.name, move || takeover::save(&upstream)).await {
                Ok(side) => tracing::warn!(?side, "unpushed writes are on a side branch"),
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "the remaining writes are not pushed; the next start pushes them"
                    );
                }
            }
        }
    }

    /// Hands the lease over without pushing the branch.
    pub async fn release(&self) {
        let Some(mut renewer) = self.end().await else { return };
        if self.lost().is_some() {
            return;
        }
        match renewer.release().await {
            Ok(true) => tracing::info!(epoch = self.record.epoch, "the writer lease is handed over"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "cannot hand over the writer lease: other servers wait until it expires"
                );
            }
        }
    }

    /// Stops renewing the lease; returns its renewer the first time.
    async fn end(&self) -> Option<tokio::sync::MutexGuard<'_, LeaseRenewer>> {
        self.stop.send_replace(true);
        let task = self.task.lock().take()?;
        let _ended = task.await;
        Some(self.renewer.lock().await)
    }
}

/// The name of the task that renews a lease.
const RENEWAL: &str = "lease-renewal";

/// Timeout of the last push of a server that stops.
const LAST: Duration = Duration::from_secs(15);
/// Delay before a retry, and the shortest interval of looks for side branches.
const LOOK: Duration = Duration::from_secs(1);

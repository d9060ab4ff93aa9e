//! One writer at a time: a lease on the remote.
//!
//! A reference of the remote says whose turn it is ([`record`]). The holder moves it on again and again; who sees it unchanged for
//! the lease's time may take it ([`terms`] decides, [`keeper`] does it). Who takes it goes on with the branch as the remote has it
//! ([`takeover`]); what the former writer had not pushed lands on a side branch ([`side`]). Format and safety argument:
//! `docs/design/writer-lease.md`; for operators: `docs/one-writer.md`.

mod chain;
mod keeper;
mod mark;
mod place;
mod record;
mod side;
mod take;
pub mod takeover;
mod terms;

use std::sync::Arc;
use std::time::Duration;

use gitcd_core::error::chain;
use gitcd_core::fence::Gate;
use gitcd_engine::recovery::OpenError;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use self::keeper::Keeper;
use self::place::Place;
pub use self::record::LEASES;
pub use self::record::reference;
use super::join::Joiner;
use super::remote::{Remote, RemoteError};
use super::status::{Condition, LeaseStatus, Statuses};

/// What is said to who wants a lease on a branch that is served.
pub(crate) const SERVED: &str = "a gitcd serves this branch: a lease needs a remote that no gitcd serves";

/// What one writer at a time takes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How long after its last renewal a lease ends.
    pub duration: Duration,
    /// The remote that has it.
    pub remote: Remote,
    /// Whether reads are answered while others have it, as of what they have pushed.
    pub hot_standby: bool,
}

/// Shorter leases would end between two renewals of a busy machine.
pub const SHORTEST: Duration = Duration::from_secs(1);
/// Nobody waits longer for a lease.
pub const LONGEST: Duration = record::LONGEST;

/// Why a branch is not ours to write.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The remote cannot have it.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Its reference leads to something else.
    #[error(
        "{reference} of remote {remote:?} is not a lease: {problem}; once no gitcd writes the branch, remove it with \
         `git push {remote} :{reference}`"
    )]
    Garbage {
        /// The remote.
        remote: String,
        /// The reference.
        reference: String,
        /// What it is.
        problem: String,
    },
    /// A server writes the branch of the remote itself.
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
    /// Somebody else was faster.
    #[error("the writer lease was taken over: {by}")]
    Lost {
        /// Whose it is.
        by: String,
    },
    /// The branch cannot be opened.
    #[error(transparent)]
    Open(#[from] Box<OpenError>),
    /// What is only here cannot be committed.
    #[error(
        "another writer has written the branch since, and the writes that only the journal here has cannot be committed; see the log"
    )]
    Uncommitted,
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// What the keeper of a lease tells.
#[derive(Debug)]
struct Shared {
    gate: Arc<Gate>,
    epoch: u64,
    /// How often the lease ended and was got back.
    reopened: watch::Sender<u64>,
    /// Whose it is if it is not ours any more.
    lost: watch::Sender<Option<String>>,
    problem: Mutex<Problem>,
}

#[derive(Debug, Default)]
struct Problem {
    /// Why the last exchange with the remote failed.
    said: Option<(Condition, String)>,
    /// That the lease has ended was told.
    is_told: bool,
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
        if !self.gate.is_open() && !problem.is_told {
            problem.is_told = true;
            tracing::error!("the writer lease has expired: no write is acknowledged until it is renewed");
        }
    }

    fn lose(&self, by: String) {
        tracing::error!(epoch = self.epoch, by, "another server has taken the writer lease: this server stops writing");
        // It answers again.
        self.problem.lock().said = None;
        self.lost.send_replace(Some(by));
    }
}

/// The lease of a branch that this process has, or had.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    place: Place,
    record: record::Record,
    stop: watch::Sender<bool>,
    keeper: Mutex<Option<JoinHandle<Keeper>>>,
    /// What only this server had is on the remote, and it can go.
    saved: watch::Sender<bool>,
}

impl Lease {
    /// Keeps a lease that was taken.
    fn keep(keeper: Keeper) -> Arc<Self> {
        let (place, record, shared) = (keeper.place.clone(), keeper.record.clone(), keeper.shared.clone());
        let stop = watch::Sender::new(false);
        let task = tokio::spawn(keeper.run(stop.subscribe()));
        let (keeper, saved) = (Mutex::new(Some(task)), watch::Sender::new(false));
        Arc::new(Self { shared, place, record, stop, keeper, saved })
    }

    /// Open while it lasts.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.shared.gate
    }

    /// Whose it is, if it is not ours any more.
    pub fn lost(&self) -> Option<String> {
        self.shared.lost.borrow().clone()
    }

    /// For `/status` and figures.
    pub fn told(&self) -> LeaseStatus {
        LeaseStatus {
            remote: self.place.remote.name.clone(),
            reference: reference(&self.place.config.data_reference),
            epoch: self.record.epoch,
            duration_seconds: self.record.duration.as_secs_f64(),
            remaining_seconds: self.gate().remaining().as_secs_f64(),
            error: self.lost().or_else(|| self.problem(&self.place.remote.name).map(|(_, said)| said)),
        }
    }

    /// Why the last exchange about the lease failed, if it was with this remote. Other exchanges are less frequent, and hear of
    /// it later.
    pub fn problem(&self, remote: &str) -> Option<(Condition, String)> {
        self.shared.problem.lock().said.clone().filter(|_| self.place.remote.name == remote)
    }

    /// `writer` while clients may be told of writes, `suspended` until the lease can be renewed, `deposed` if somebody else has it.
    pub fn role(&self) -> &'static str {
        if self.gate().is_closed_for_good() {
            "deposed"
        } else if self.gate().is_open() {
            "writer"
        } else {
            "suspended"
        }
    }

    fn place(&self) -> &Place {
        &self.place
    }

    /// Waits until somebody else has the lease and what only this server had is on the remote. Tells whose it is.
    pub async fn deposed(&self) -> String {
        let (mut saved, lost) = (self.saved.subscribe(), self.shared.lost.subscribe());
        if saved.wait_for(|saved| *saved).await.is_err() {
            std::future::pending::<()>().await;
        }
        lost.borrow().clone().unwrap_or_default()
    }

    /// Does what is to be done while the branch is served, until told to stop.
    pub async fn serve(&self, joiner: &Joiner, statuses: &Statuses, mut stopped: watch::Receiver<bool>) {
        let mut reopened = self.shared.reopened.subscribe();
        let mut lost = self.shared.lost.subscribe();
        let followed = stopped.clone();
        let sides = side::follow(self.place.clone(), joiner, statuses, self.record.duration.max(LOOK), followed);
        let work = async {
            loop {
                let is_lost = tokio::select! {
                    _ = lost.wait_for(Option::is_some) => true,
                    _ = reopened.changed() => false,
                };
                if is_lost {
                    break;
                }
                joiner.store().resume().await;
            }
            self.save(joiner).await;
        };
        tokio::select! {
            () = async { tokio::join!(work, sides); } => {}
            _ = stopped.wait_for(|stopped| *stopped) => {}
        }
    }

    /// Puts what only this server has on the remote, however long that takes.
    async fn save(&self, joiner: &Joiner) {
        loop {
            let done = match joiner.commit().await {
                Ok(head) => {
                    let place = self.place.clone();
                    let saved = spawn_blocking(move || side::save(&place, head.data)).await;
                    let saved = saved.expect("an exchange does not panic");
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

    /// The end of a server whose branch is committed: pushes everything, then hands the lease over, so that nobody needs to wait for its end.
    pub async fn hand_over(&self) {
        if self.lost().is_none() {
            let place = self.place.clone();
            let pushed = keeper::within(LAST, &self.place.remote.name, move || takeover::push_last(&place)).await;
            if let Err(error) = pushed {
                // Who takes it must wait: perhaps this server comes back with what it has.
                tracing::warn!(
                    error = chain(&error),
                    "the last commits are not pushed, so the lease is not handed over"
                );
                self.end().await;
                return;
            }
            self.release().await;
        } else if !*self.saved.borrow() {
            let place = self.place.clone();
            match keeper::within(LAST, &self.place.remote.name, move || takeover::save(&place)).await {
                Ok(side) => tracing::warn!(?side, "what only this server had acknowledged is on a side branch"),
                Err(error) => {
                    tracing::warn!(
                        error = chain(&error),
                        "the remaining writes are not pushed; the next start pushes them"
                    );
                }
            }
        }
    }

    /// Gives the lease up at once.
    pub async fn release(&self) {
        let Some(keeper) = self.end().await else { return };
        if self.lost().is_some() {
            return;
        }
        match keeper.release().await {
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

    /// No renewals any more.
    async fn end(&self) -> Option<Keeper> {
        self.stop.send_replace(true);
        let keeper = self.keeper.lock().take()?;
        keeper.await.ok()
    }
}

/// A server that stops does not wait longer for its remote.
const LAST: Duration = Duration::from_secs(15);
/// How often something is tried again that is not urgent.
const LOOK: Duration = Duration::from_secs(1);

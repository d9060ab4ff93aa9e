//! Notices of a supervisor, and its periodic work.

use std::path::PathBuf;
use std::time::Duration;

use super::Failure;
use crate::plane::http::TrustError;
use crate::plane::process::Ended;
use crate::plane::state::StateError;

/// Periodic work while components run, such as the renewal of certificates.
pub struct PeriodicWork<'a> {
    /// Time until it is due.
    pub due_in: Duration,
    /// Runs the due work; returns what was done, or an error message.
    pub run: Box<dyn FnMut() -> Result<WorkDone, String> + 'a>,
}

/// The result of periodic work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkDone {
    /// The renewed certificates, for messages.
    pub renewed: Vec<String>,
    /// Components that must restart to use them.
    pub restart: Vec<String>,
    /// Time until the next work is due.
    pub due_in: Duration,
}

/// A notice for the user who started the control plane.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A component became ready.
    Ready {
        /// The component.
        component: String,
        /// Its loopback port, if it has one.
        port: Option<u16>,
        /// Time since its start.
        after: Duration,
    },
    /// The preparation of a component takes long, and makes progress.
    Preparing {
        /// The component.
        component: String,
        /// What it does, such as a fetch with objects and bytes.
        progress: String,
    },
    /// Every component has been ready.
    AllReady {
        /// Time since the first start.
        after: Duration,
    },
    /// The start is over, but a component that is not essential is not ready.
    Degraded {
        /// Time since the first start.
        after: Duration,
        /// The component.
        component: String,
    },
    /// Every component has been ready, or waits for its turn to write.
    StandingBy {
        /// The component that waits for its turn.
        component: String,
    },
    /// A component exited by itself and restarts after the pause.
    Restarting(Failure, Duration),
    /// The start no longer waits for a component that is not essential: it was not ready in time, or keeps exiting. It
    /// keeps restarting.
    Late(Failure),
    /// Everything is about to be stopped, last started first.
    Stopping,
    /// A component was stopped on request.
    Ended {
        /// The component.
        component: String,
        /// How it was stopped.
        how: Ended,
        /// Time since the request.
        after: Duration,
    },
    /// Certificates were renewed.
    Renewed(WorkDone),
    /// Certificates could not be renewed; it is retried.
    NotRenewed(String),
    /// The registry of control planes cannot be written: `trishanku list` may not show this one.
    NotListed(std::io::Error),
    /// The state could not be saved; the control plane keeps running.
    StateNotWritten(StateError),
    /// A log that is too large cannot be rotated; it keeps growing.
    LogNotRotated(PathBuf, std::io::Error),
}

/// Why a control plane did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A component exited, or was not ready in time. Everything has been stopped again.
    #[error("{0}")]
    Failed(Failure),
    /// A certificate or key of the control plane cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The folder was removed, moved away or replaced. Everything has been stopped.
    #[error(
        "the state folder {dir:?} was removed, moved away or replaced; stopped all processes of its control plane; to delete a control plane, use `trishanku delete`"
    )]
    FolderGone {
        /// The folder.
        dir: PathBuf,
    },
    /// The start order is impossible.
    #[error("{component} starts after {after}, which does not exist or itself starts after {component}")]
    Order {
        /// The component.
        component: String,
        /// The component before it.
        after: String,
    },
}

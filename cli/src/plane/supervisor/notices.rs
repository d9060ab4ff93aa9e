//! What a supervisor tells, and what it is asked to do beside its work.

use std::path::PathBuf;
use std::time::Duration;

use super::Failure;
use crate::plane::http::TrustError;
use crate::plane::process::Ended;
use crate::plane::state::StateError;

/// What has to be done from time to time while components run, such as making certificates anew.
pub struct Upkeep<'a> {
    /// How long until it is due.
    pub due_in: Duration,
    /// Does what is due; answers with what was done, or why it cannot be.
    pub keep_up: Box<dyn FnMut() -> Result<KeptUp, String> + 'a>,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptUp {
    /// What was made anew, for a person.
    pub renewed: Vec<String>,
    /// Components that have to begin anew to learn of it.
    pub restart: Vec<String>,
    /// How long until something is due again.
    pub due_in: Duration,
}

/// Something that whoever started the control plane wants to read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice {
    /// A component answers that it is ready, this long after it was started.
    Ready {
        /// The component.
        component: String,
        /// Its loopback port, if it has one.
        port: Option<u16>,
        /// Since its start.
        after: Duration,
    },
    /// Every component has been ready, this long after the first was started.
    AllReady {
        /// Since the first start.
        after: Duration,
    },
    /// Every component has been ready, or waits until it is its turn to write.
    StandingBy {
        /// Who waits for its turn.
        component: String,
    },
    /// A component ended unasked and is started again after the pause.
    Restarting(Failure, Duration),
    /// A component without which all others are ready is not ready in time. It goes on being tried.
    Late(Failure),
    /// Everything is about to be ended, last started first.
    Stopping,
    /// A component has ended as told.
    Ended {
        /// The component.
        component: String,
        /// How it ended.
        how: Ended,
        /// Since it was told.
        after: Duration,
    },
    /// Certificates were made anew.
    Renewed(KeptUp),
    /// Certificates could not be made anew. It is tried again.
    NotRenewed(String),
    /// The state could not be written down; the control plane goes on.
    StateNotWritten(StateError),
    /// A log that has become too large cannot be put aside; it goes on growing.
    LogNotRotated(PathBuf, std::io::Error),
}

/// Why a control plane did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A component ended, or was not ready in time. Everything has been ended again.
    #[error("{0}")]
    Failed(Failure),
    /// The authority's certificate cannot be read back.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A component waits for something that does not come before it.
    #[error("{component} starts after {after}, which does not exist or itself starts after {component}")]
    Order {
        /// The component.
        component: String,
        /// What it waits for.
        after: String,
    },
}

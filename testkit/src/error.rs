//! Errors of the start of a test cluster.

use std::time::Duration;

use crate::programs::ProgramsError;

/// Why a cluster could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// kube-apiserver is not installed.
    #[error(transparent)]
    Programs(#[from] ProgramsError),
    /// A file, process or port is not available.
    #[error("cannot start a test cluster")]
    System(#[source] std::io::Error),
    /// gitcd failed to start.
    #[error("cannot start gitcd: {0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// No client can be created.
    #[error("cannot create a client for kube-apiserver")]
    Client(#[source] Box<kube::Error>),
    /// A program exited during its start.
    #[error("{program} exited during its start; its last lines:\n{log}")]
    Ended {
        /// The program.
        program: &'static str,
        /// Its last lines.
        log: String,
    },
    /// A program runs, and is not ready.
    #[error("{program} was not ready within {within:?}; its last lines:\n{log}")]
    NotReady {
        /// The program.
        program: &'static str,
        /// How long it was given.
        within: Duration,
        /// Its last lines.
        log: String,
    },
}

//! Errors of the start of a test cluster.

use std::path::PathBuf;
use std::time::Duration;

use crate::programs::ProgramsError;

/// Why a cluster could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A program is not installed.
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
    /// A kubeconfig cannot be used.
    #[error("cannot use kubeconfig {path:?}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// An existing cluster does not answer, or refuses its user.
    #[error("the existing cluster at {url} does not answer; check that it runs and that the credentials are valid")]
    Unreachable {
        /// URL of its apiserver.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
    /// A variable selects a cluster in a way that is not known.
    #[error("{variable}={value:?} is invalid: expected {expected}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Valid values.
        expected: &'static str,
    },
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

//! Stops a control plane from another process.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::plane::home::{Home, HomeError, SUPERVISOR};
use crate::plane::leftovers::{self, Leftover, LeftoverError};
use crate::plane::registry::Registry;
use crate::plane::state::{Phase, State, StateError};

/// Longer than the grace periods of all components together: it only passes if something is wrong.
const PATIENCE: Duration = Duration::from_secs(150);

/// How a control plane was found and stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Down {
    /// Nothing ran.
    NotRunning,
    /// The supervisor stopped everything and exited.
    Stopped,
    /// There was no supervisor; these processes were stopped in its place.
    EndedLeftovers(Vec<Leftover>),
    /// The folder was removed or moved away; these processes of it were stopped.
    EndedStrays(Vec<Leftover>),
}

/// Why a control plane could not be stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// The supervisor cannot be signalled.
    #[error("cannot stop the supervisor (process {pid})")]
    Signal {
        /// The supervisor.
        pid: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The supervisor does not exit.
    #[error(
        "the supervisor (process {pid}) still runs after {PATIENCE:?}; see {log:?}, then kill it and run `trishanku down` again"
    )]
    StillRunning {
        /// The supervisor.
        pid: u32,
        /// Its log.
        log: PathBuf,
    },
    /// Another `trishanku` process is starting or stopping the control plane.
    #[error("another `trishanku` is starting or stopping the control plane in {dir:?}; try again when it is done")]
    Busy {
        /// The control plane's folder.
        dir: PathBuf,
    },
    /// See [`HomeError`].
    #[error(transparent)]
    Home(#[from] HomeError),
    /// See [`StateError`].
    #[error(transparent)]
    State(#[from] StateError),
    /// See [`LeftoverError`].
    #[error(transparent)]
    Leftover(#[from] LeftoverError),
}

/// Stops the control plane in `home` and waits until none of its processes run. Blocks the thread.
///
/// # Errors
/// See [`DownError`].
pub fn down(home: &Home) -> Result<Down, DownError> {
    let strays = Registry::of_user().map(|registry| leftovers::end_strays(home, &registry)).transpose()?;
    let strays = strays.unwrap_or_default();
    if !home.is_used() {
        return Ok(if strays.is_empty() { Down::NotRunning } else { Down::EndedStrays(strays) });
    }
    let state = State::load(&home.state_file())?;
    let supervisor = state.supervisor.as_ref().filter(|s| s.is_alive());
    if let Some(supervisor) = supervisor {
        let pid = supervisor.pid;
        let failed = |source| DownError::Signal { pid, source };
        supervisor.signal(Signal::TERM).map_err(failed)?;
        if !supervisor.wait_ended(PATIENCE).map_err(failed)? {
            let log = home.log(SUPERVISOR);
            return Err(DownError::StillRunning { pid, log });
        }
    }
    let Some(_lock) = home.try_lock()? else {
        return Err(DownError::Busy { dir: home.dir().into() });
    };
    // Also after a graceful stop: a supervisor that was killed while stopping leaves components behind.
    let mut after = State::load(&home.state_file())?;
    let leftovers = leftovers::end(&after)?;
    if after.phase != Phase::Stopped {
        after.forget_processes();
        after.save(&home.state_file())?;
    }
    Ok(match (supervisor.is_some(), leftovers.is_empty()) {
        (_, false) => Down::EndedLeftovers(leftovers),
        (true, true) => Down::Stopped,
        (false, true) if !strays.is_empty() => Down::EndedStrays(strays),
        (false, true) => Down::NotRunning,
    })
}

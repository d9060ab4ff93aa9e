//! Stops the processes of a supervisor that was killed, or whose folder is gone.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use super::home::{Home, SUPERVISOR};
use super::process::{Ended, Identity};
use super::registry::Registry;
use super::state::State;

/// The store may need this long to commit its journal.
const GRACE: Duration = Duration::from_mins(1);
/// How long a supervisor may take to notice that its folder is gone, and to kill its components.
const STRAY_GRACE: Duration = Duration::from_secs(30);

/// A process of an earlier run that was stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The component.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub how: Ended,
}

/// Why the processes of an earlier run cannot be stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeftoverError {
    /// The system refuses.
    #[error("{name} (process {pid}) is left from an earlier run and cannot be stopped; kill it")]
    Process {
        /// The component.
        name: String,
        /// Its process id.
        pid: u32,
        /// The error of the system.
        source: io::Error,
    },
    /// The registry cannot be read.
    #[error("cannot look up the control planes that run in $XDG_STATE_HOME/trishanku/planes; see {dir:?}")]
    Registry {
        /// The control plane's folder.
        dir: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Stops the components that still run, last started first. Blocks the thread, about a minute per component at most.
///
/// A process that only has the same id as a component is left alone, see [`super::process`].
///
/// # Errors
/// [`LeftoverError`] names the process that cannot be stopped.
pub fn end(state: &State) -> Result<Vec<Leftover>, LeftoverError> {
    let mut ended = Vec::new();
    for component in state.components.iter().rev() {
        let Some(process) = &component.process else { continue };
        ended.extend(end_one(&component.name, process, GRACE)?);
    }
    Ok(ended)
}

/// Stops the supervisors, and their components, of folders that were at the path of this one and were removed or moved
/// away. Blocks the thread. Components are killed: they must not write to a new folder at their path, and stores are
/// durable anyway.
///
/// # Errors
/// [`LeftoverError`] names the process that cannot be stopped.
pub fn end_strays(home: &Home, registry: &Registry) -> Result<Vec<Leftover>, LeftoverError> {
    let strays = registry.strays(home).map_err(|source| LeftoverError::Registry { dir: home.dir().into(), source })?;
    let mut ended = Vec::new();
    for stray in strays {
        ended.extend(stray.supervisor.as_ref().map(end_supervisor).transpose()?.flatten());
        for component in stray.processes.iter().rev() {
            ended.extend(end_one(&component.name, &component.process, Duration::ZERO)?);
        }
    }
    Ok(ended)
}

/// Stops a supervisor, but not its group, which may have other programs of the same shell command.
fn end_supervisor(supervisor: &Identity) -> Result<Option<Leftover>, LeftoverError> {
    let (name, pid) = (SUPERVISOR.to_owned(), supervisor.pid);
    let end = || {
        if !supervisor.signal(Signal::TERM)? {
            return Ok(None);
        }
        if supervisor.wait_ended(STRAY_GRACE)? {
            return Ok(Some(Ended::Gracefully));
        }
        supervisor.signal(Signal::KILL)?;
        supervisor.wait_ended(STRAY_GRACE)?;
        Ok(Some(Ended::Killed))
    };
    match end() {
        Ok(how) => Ok(how.map(|how| Leftover { name, pid, how })),
        Err(source) => Err(LeftoverError::Process { name, pid, source }),
    }
}

fn end_one(name: &str, process: &Identity, grace: Duration) -> Result<Option<Leftover>, LeftoverError> {
    let failed = |source| LeftoverError::Process { name: name.to_owned(), pid: process.pid, source };
    let how = process.end(grace).map_err(failed)?;
    Ok((how != Ended::Before).then(|| Leftover { name: name.to_owned(), pid: process.pid, how }))
}

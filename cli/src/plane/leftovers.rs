//! Stops the processes of a supervisor that was killed.

use std::io;
use std::time::Duration;

use super::process::Ended;
use super::state::State;

/// The store may need this long to commit its journal.
const GRACE: Duration = Duration::from_mins(1);

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

/// A process of an earlier run that cannot be stopped.
#[derive(Debug, thiserror::Error)]
#[error("{name} (process {pid}) is left from an earlier run and cannot be stopped; kill it")]
pub struct LeftoverError {
    name: String,
    pid: u32,
    source: io::Error,
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
        let Some(process) = &component.process else {
            continue;
        };
        let how = process.end(GRACE).map_err(|source| LeftoverError {
            name: component.name.clone(),
            pid: process.pid,
            source,
        })?;
        if how != Ended::Before {
            ended.push(Leftover { name: component.name.clone(), pid: process.pid, how });
        }
    }
    Ok(ended)
}

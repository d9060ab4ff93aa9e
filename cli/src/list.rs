//! The control planes on this machine.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::heavens::Kind;
use crate::plane::home::{Home, HomeError};
use crate::plane::registry::{Entry, Registry};
use crate::plane::state::State;
use crate::status::{self, Health};

/// A control plane that runs or exists on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name; `None` if only its folder selects it.
    pub name: Option<String>,
    /// Its folder.
    pub dir: PathBuf,
    /// Its health, from the running processes; `None` if its state cannot be read.
    pub health: Option<Health>,
    /// When the supervisor started, or when the control plane was stopped, in seconds since 1970.
    pub since_unix_seconds: Option<u64>,
    /// The names of its heavens.
    pub heavens: Vec<String>,
    /// What is wrong with it, and what to do.
    pub error: Option<String>,
}

/// Why control planes cannot be listed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// See [`HomeError`].
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The registry cannot be read.
    #[error("cannot read the registry of control planes in $XDG_STATE_HOME/trishanku/planes")]
    Registry(#[source] std::io::Error),
}

/// Lists the control planes with a name, and the running and former ones of this user with a folder elsewhere, by folder.
/// Sends no requests. A folder that was moved away and that has no running processes is only found by its name.
///
/// # Errors
/// See [`ListError`].
pub fn list() -> Result<Vec<Listed>, ListError> {
    let entries = Registry::of_user().map(|registry| registry.entries()).transpose().map_err(ListError::Registry)?;
    let (here, strays): (Vec<Entry>, Vec<Entry>) =
        entries.unwrap_or_default().into_iter().partition(Entry::is_in_place);
    let mut homes: Vec<Home> = here.iter().map(|entry| Home::at(&entry.dir)).chain(Home::all_named()?).collect();
    homes.sort_by(|one, other| one.dir().cmp(other.dir()));
    homes.dedup();
    let mut listed: Vec<Listed> = homes.iter().map(of_home).chain(strays.iter().map(of_stray)).collect();
    listed.sort_by(|one, other| one.dir.cmp(&other.dir));
    Ok(listed)
}

fn of_home(home: &Home) -> Listed {
    let listed = Listed {
        name: home.name().map(ToOwned::to_owned),
        dir: home.dir().into(),
        health: None,
        since_unix_seconds: None,
        heavens: Vec::new(),
        error: None,
    };
    let state = match State::load(&home.state_file()) {
        Ok(state) => state,
        Err(error) => return Listed { error: Some(error.to_string()), ..listed },
    };
    let running = state.supervisor.as_ref().filter(|supervisor| supervisor.is_alive());
    let since = match running {
        Some(supervisor) => supervisor.started_at(),
        // The last change of its state.
        None => home.state_file().metadata().and_then(|metadata| metadata.modified()),
    };
    let heavens = state.heavens.iter().filter(|heaven| heaven.kind == Kind::Heaven);
    Listed {
        health: Some(status::health_of(&state)),
        since_unix_seconds: since.ok().map(unix_seconds),
        heavens: heavens.map(|heaven| heaven.name.clone()).collect(),
        ..listed
    }
}

fn of_stray(stray: &Entry) -> Listed {
    let home = Home::at(&stray.dir);
    let supervisor = stray.supervisor.as_ref().filter(|supervisor| supervisor.is_alive());
    Listed {
        name: home.name().map(ToOwned::to_owned),
        dir: stray.dir.clone(),
        health: Some(Health::Orphaned),
        since_unix_seconds: supervisor.and_then(|supervisor| supervisor.started_at().ok()).map(unix_seconds),
        heavens: Vec::new(),
        error: Some("its folder was removed, moved away or replaced; `trishanku down` stops its processes".to_owned()),
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

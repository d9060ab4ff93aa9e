//! The folder of a control plane: the supervisor stops everything if it is gone, and records what runs in it.

use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};

use super::{Notice, StartError, Supervisor};
use crate::plane::home::Home;
use crate::plane::lock::HomeLock;
use crate::plane::registry::Registry;

/// How often the supervisor checks that its folder is still in place.
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// The locked folder of a control plane.
pub(super) struct Folder<'a> {
    home: &'a Home,
    lock: &'a HomeLock,
    registry: Option<Registry>,
}

impl<'a> Supervisor<'a> {
    /// Stops everything as soon as the locked folder is removed, moved away or replaced, and records what runs in the
    /// registry.
    #[must_use]
    pub fn in_folder(mut self, home: &'a Home, lock: &'a HomeLock, registry: Option<Registry>) -> Self {
        self.folder = Some(Folder { home, lock, registry });
        self
    }

    /// Checks that the folder is still in place.
    pub(super) fn check_folder(&self) -> Result<(), StartError> {
        match &self.folder {
            Some(Folder { home, lock, .. }) if !lock.is_in_place() => {
                Err(StartError::FolderGone { dir: home.dir().into() })
            }
            _ => Ok(()),
        }
    }

    /// Writes the state, and the entry of the registry.
    pub(super) fn save(&mut self) {
        if let Some(Folder { home, lock, registry }) = &mut self.folder
            && let Some(of_user) = registry
            && let Err(error) = of_user.record(home, lock, &self.state)
        {
            *registry = None;
            (self.notify)(Notice::NotListed(error));
        }
        // The state file at this path may be another control plane's.
        if self.check_folder().is_ok()
            && let Err(error) = self.state.save(&self.state_file)
        {
            (self.notify)(Notice::StateNotWritten(error));
        }
    }
}

/// Returns the times of the checks, the first of which is now.
pub(super) fn folder_checks() -> Interval {
    let mut checks = tokio::time::interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    checks
}

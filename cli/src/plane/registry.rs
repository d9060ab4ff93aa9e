//! The registry of control planes of this user: which folders have one, and which processes they run.
//!
//! A folder that was removed or moved away takes its state file with it; its processes are found here. An entry is only
//! a hint: folders are identified by their lock file, and processes by more than their id, so nothing else is mistaken
//! for them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::home::{Home, xdg_folder};
use super::lock::{HomeLock, LockId};
use super::process::Identity;
use super::state::State;

/// The registry. Each control plane has a file in its folder.
#[derive(Clone, Debug)]
pub struct Registry {
    folder: PathBuf,
}

/// A control plane, as of the last event of its supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The path of its folder.
    pub dir: PathBuf,
    /// The identity of its folder.
    pub lock: LockId,
    /// Its supervisor; meaningful only while that is alive.
    pub supervisor: Option<Identity>,
    /// The processes of its components; meaningful only while they are alive.
    pub processes: Vec<Process>,
}

/// The process of a component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The component.
    pub name: String,
    /// The process.
    pub process: Identity,
}

impl Registry {
    /// The registry of the user, in `$XDG_STATE_HOME/trishanku/planes`; `None` if neither that nor `HOME` is set.
    #[must_use]
    pub fn of_user() -> Option<Self> {
        Some(Self::at(xdg_folder("XDG_STATE_HOME", ".local/state")?.join("trishanku/planes")))
    }

    /// The registry in this folder.
    #[must_use]
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Creates or replaces the entry of a locked folder. An entry is of no use after a power failure, so it is not
    /// synced to disk.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn record(&self, home: &Home, lock: &HomeLock, state: &State) -> io::Result<()> {
        let process = |component: &super::state::Component| {
            Some(Process { name: component.name.clone(), process: component.process.clone()? })
        };
        let entry = Entry {
            dir: home.dir().into(),
            lock: lock.id(),
            supervisor: state.supervisor.clone(),
            processes: state.components.iter().filter_map(process).collect(),
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let path = self.path(entry.lock);
        // Only the holder of the lock writes this file.
        let next = path.with_extension("next");
        std::fs::write(&next, serde_json::to_vec_pretty(&entry)?)?;
        std::fs::rename(next, path)
    }

    /// Returns the entries whose folder exists or whose processes run, by path; removes the others.
    ///
    /// # Errors
    /// If the registry cannot be read.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let files = match std::fs::read_dir(&self.folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut entries = Vec::new();
        for file in files {
            let path = file?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            // A file of another version, or half of one after a power failure, has no entry.
            let entry = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Entry>(&text).ok());
            match entry {
                Some(entry) if entry.is_in_place() || entry.is_running() => entries.push(entry),
                _ => match std::fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                },
            }
        }
        entries.sort_by(|one, other| one.dir.cmp(&other.dir));
        Ok(entries)
    }

    /// Returns the entries of other folders that were at the path of this one, and whose processes still run.
    ///
    /// # Errors
    /// If the registry or the folder cannot be read.
    pub fn strays(&self, home: &Home) -> io::Result<Vec<Entry>> {
        let current = LockId::of(&home.lock_file())?;
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.dir == home.dir() && Some(entry.lock) != current && entry.is_running());
        Ok(entries)
    }

    /// Removes the entry of a folder, if there is one.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn forget(&self, lock: LockId) -> io::Result<()> {
        match std::fs::remove_file(self.path(lock)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn path(&self, lock: LockId) -> PathBuf {
        self.folder.join(format!("{}-{}.json", lock.device, lock.inode))
    }
}

impl Entry {
    /// Whether its folder is still at its path.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        let lock = Home::at(&self.dir).lock_file();
        LockId::of(&lock).is_ok_and(|found| found == Some(self.lock))
    }

    /// Whether its supervisor or a component runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.supervisor.iter().chain(self.processes.iter().map(|process| &process.process)).any(Identity::is_alive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lasts_as_long_as_its_folder_or_its_processes() {
        let dir = tempfile::tempdir().unwrap();
        let registry = Registry::at(dir.path().join("registry"));
        assert_eq!(registry.entries().unwrap(), []);
        let home = Home::at(&dir.path().join("plane"));
        std::fs::create_dir(home.dir()).unwrap();
        let lock = home.try_lock().unwrap().unwrap();
        let mut state = State { supervisor: Identity::of(std::process::id()).unwrap(), ..State::default() };
        registry.record(&home, &lock, &state).unwrap();
        assert_eq!(registry.entries().unwrap().len(), 1);
        assert_eq!(registry.strays(&home).unwrap(), []);

        // Another folder at the same path: this process belongs to the old one.
        let away = dir.path().join("away");
        std::fs::rename(home.dir(), &away).unwrap();
        std::fs::create_dir(home.dir()).unwrap();
        let other = home.try_lock().unwrap().unwrap();
        let strays = registry.strays(&home).unwrap();
        assert_eq!((strays.len(), strays[0].lock), (1, lock.id()));

        state.supervisor = None;
        registry.record(&home, &lock, &state).unwrap();
        registry.record(&home, &other, &state).unwrap();
        let entries = registry.entries().unwrap();
        assert_eq!((entries.len(), entries[0].lock), (1, other.id()), "nothing runs of the old one");
        registry.forget(other.id()).unwrap();
        assert_eq!(registry.entries().unwrap(), []);
    }
}

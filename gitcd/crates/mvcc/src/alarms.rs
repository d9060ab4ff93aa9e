//! Alarms (etcd: `server/etcdserver/api/v3alarm`): conditions that an operator has to clear, kept over restarts.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use gitcd_core::durable;

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// The keys and their history reached `--quota-backend-bytes`: only requests that free space are accepted.
    NoSpace,
    /// A check found corrupt data: requests are refused.
    Corrupt,
}

impl Alarm {
    /// Returns etcd's name of the alarm.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::NoSpace, Self::Corrupt].into_iter().find(|alarm| alarm.name() == name)
    }
}

/// The alarms of a branch, each with the ID of the member that it concerns.
///
/// They are stored in the file `alarms` of the state folder, one on each line: `NOSPACE 4611686018427387904`.
#[derive(Debug, Default)]
pub struct Alarms {
    file: Option<PathBuf>,
    active: Mutex<BTreeSet<(Alarm, u64)>>,
    no_space: AtomicBool,
    corrupt: AtomicBool,
}

impl Alarms {
    /// Reads the alarms from a state folder.
    ///
    /// # Errors
    /// The file exists but cannot be read or parsed.
    pub fn read(folder: &Path) -> io::Result<Self> {
        let file = folder.join("alarms");
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let line = |line: &str| {
            let (name, member) = line.split_once(' ')?;
            Some((Alarm::of(name)?, member.parse().ok()?))
        };
        let parsed = text.lines().map(|text| {
            let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{text:?} is not an alarm"));
            line(text).ok_or_else(wrong)
        });
        let alarms =
            Self { file: Some(file), active: Mutex::new(parsed.collect::<Result<_, _>>()?), ..Self::default() };
        alarms.refresh(&alarms.active.lock());
        Ok(alarms)
    }

    /// Returns whether an alarm is raised. Costs one atomic load.
    #[inline]
    pub fn is_raised(&self, alarm: Alarm) -> bool {
        match alarm {
            Alarm::NoSpace => self.no_space.load(Ordering::Acquire),
            Alarm::Corrupt => self.corrupt.load(Ordering::Acquire),
        }
    }

    /// Returns all raised alarms and their members.
    pub fn list(&self) -> Vec<(Alarm, u64)> {
        self.active.lock().iter().copied().collect()
    }

    /// Raises an alarm, effective immediately. If it cannot be stored, it lasts until the next restart.
    pub fn raise(&self, alarm: Alarm, member: u64) {
        let mut active = self.active.lock();
        if active.insert((alarm, member)) {
            tracing::warn!(alarm = alarm.name(), "alarm raised: clear its cause, then `etcdctl alarm disarm`");
            self.refresh(&active);
            self.record(&active);
        }
    }

    /// Clears an alarm; returns false if it was not raised.
    pub fn clear(&self, alarm: Alarm, member: u64) -> bool {
        let mut active = self.active.lock();
        let cleared = active.remove(&(alarm, member));
        if cleared {
            tracing::info!(alarm = alarm.name(), "alarm cleared");
            self.refresh(&active);
            self.record(&active);
        }
        cleared
    }

    fn refresh(&self, active: &BTreeSet<(Alarm, u64)>) {
        let raised = |alarm| active.iter().any(|(active, _)| *active == alarm);
        self.no_space.store(raised(Alarm::NoSpace), Ordering::Release);
        self.corrupt.store(raised(Alarm::Corrupt), Ordering::Release);
    }

    fn record(&self, active: &BTreeSet<(Alarm, u64)>) {
        let Some(file) = &self.file else { return };
        let text =
            active.iter().fold(String::new(), |text, (alarm, member)| text + alarm.name() + &format!(" {member}\n"));
        let replace = || durable::replace(file, text.as_bytes());
        if let Err(error) = replace() {
            tracing::warn!(%error, file = %file.display(), "cannot store the alarms: the change is lost at the next restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_kept_over_restarts_until_they_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let alarms = Alarms::read(folder.path()).unwrap();
        assert!(!alarms.is_raised(Alarm::NoSpace));
        alarms.raise(Alarm::NoSpace, 1);
        alarms.raise(Alarm::NoSpace, 2);
        alarms.raise(Alarm::Corrupt, 1);

        let alarms = Alarms::read(folder.path()).unwrap();
        assert_eq!(alarms.list(), [(Alarm::NoSpace, 1), (Alarm::NoSpace, 2), (Alarm::Corrupt, 1)]);
        assert!(alarms.clear(Alarm::NoSpace, 1) && alarms.is_raised(Alarm::NoSpace));
        assert!(alarms.clear(Alarm::NoSpace, 2) && !alarms.is_raised(Alarm::NoSpace));
        assert!(!alarms.clear(Alarm::NoSpace, 2));
        assert_eq!(Alarms::read(folder.path()).unwrap().list(), [(Alarm::Corrupt, 1)]);
    }

    #[test]
    fn a_file_that_is_no_list_of_alarms_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("alarms"), "NOSPACE\n").unwrap();
        assert!(Alarms::read(folder.path()).unwrap_err().to_string().contains("NOSPACE"));
    }
}

//! Identifies processes: an id may be reused, but not together with its start time.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process of one boot of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    started: u64,
    /// The kernel's id of the boot.
    boot: String,
}

/// How [`Identity::end`] stopped a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It had exited before.
    Before,
    /// It exited on request.
    Gracefully,
    /// It had to be killed.
    Killed,
}

impl Identity {
    /// Identifies a running process; `None` if it does not exist or is a zombie.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn of(pid: u32) -> io::Result<Option<Self>> {
        let Some(started) = started(pid)? else {
            return Ok(None);
        };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(Some(Self { pid, started, boot: boot.trim().to_owned() }))
    }

    /// Whether this process still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).ok().flatten().as_ref() == Some(self)
    }

    /// When the process started.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn started_at(&self) -> io::Result<SystemTime> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        let boot = boot.ok_or_else(|| io::Error::other("there is no boot time in /proc/stat"))?;
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        Ok(UNIX_EPOCH + Duration::from_secs(boot) + Duration::from_millis(self.started.saturating_mul(1000) / ticks))
    }

    /// Sends a signal to this process only; `false` if it has exited.
    ///
    /// # Errors
    /// If the system refuses, for example for a process of another user.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(handle) = self.open()? else {
            return Ok(false);
        };
        match pidfd_send_signal(&handle, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has exited; `false` if it still runs after `timeout`. Blocks the thread.
    ///
    /// # Errors
    /// If the process cannot be observed.
    pub fn wait_ended(&self, timeout: Duration) -> io::Result<bool> {
        let Some(handle) = self.open()? else {
            return Ok(true);
        };
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut fds = [PollFd::new(&handle, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Stops the process, kills it after `grace`, and then kills the rest of the group that it leads. Blocks the thread.
    ///
    /// # Errors
    /// If the system refuses a signal, or if the process still exists ten seconds after the kill.
    pub fn end(&self, grace: Duration) -> io::Result<Ended> {
        if !self.signal(Signal::TERM)? {
            return Ok(Ended::Before);
        }
        let mut how = Ended::Gracefully;
        if !self.wait_ended(grace)? {
            self.signal(Signal::KILL)?;
            how = Ended::Killed;
        }
        if self.wait_ended(Duration::from_secs(10))? {
            // While the group has members, its number is not reused.
            if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
                let _empty = kill_process_group(group, Signal::KILL);
            }
            return Ok(how);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("process {} still exists after SIGKILL", self.pid)))
    }

    /// Opens a handle to exactly this process. The check comes after opening: from then on, a reused id is noticed.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => Ok(self.is_alive().then_some(handle)),
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Start time of a process in clock ticks since boot; `None` if it has exited.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let stat = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat,
        // The kernel returns ESRCH if the process exits between open and read.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    parse_stat(&stat)
}

/// Field 22 of `/proc/PID/stat`, see proc(5). The second field is a name in parentheses that may contain any byte.
fn parse_stat(stat: &str) -> io::Result<Option<u64>> {
    let malformed = || io::Error::other(format!("cannot understand /proc/PID/stat: {stat:?}"));
    let (_, rest) = stat.rsplit_once(')').ok_or_else(malformed)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().ok_or_else(malformed)?;
    if matches!(state, "Z" | "X") {
        return Ok(None);
    }
    let started = fields.nth(18).ok_or_else(malformed)?;
    started.parse().map(Some).map_err(|_| malformed())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            Self(Command::new("sleep").arg("60").spawn().unwrap())
        }
        fn identity(&self) -> Identity {
            Identity::of(self.0.id()).unwrap().unwrap()
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ended = self.0.kill();
            let _reaped = self.0.wait();
        }
    }

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_confuse_the_reader() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
        assert_eq!(parse_stat(stat).unwrap(), Some(4711));
        assert_eq!(parse_stat(&stat.replace(" S ", " Z ")).unwrap(), None);
        assert!(parse_stat("7 (x) S 1").is_err());
    }

    #[test]
    fn the_start_of_a_process_is_known() {
        let before = SystemTime::now();
        let started = Sleeper::start().identity().started_at().unwrap();
        // The boot time is in whole seconds.
        let apart = started.duration_since(before).unwrap_or_else(|error| error.duration());
        assert!(apart < Duration::from_secs(3), "{apart:?}");
    }

    #[test]
    fn a_recycled_id_is_not_the_same_process_and_is_never_signalled() {
        let sleeper = Sleeper::start();
        let recycled = Identity { started: sleeper.identity().started + 1, ..sleeper.identity() };
        assert!(!recycled.is_alive());
        assert!(!recycled.signal(Signal::KILL).unwrap());
        assert_eq!(recycled.end(Duration::ZERO).unwrap(), Ended::Before);
        assert!(sleeper.identity().is_alive());
    }

    #[test]
    fn ending_is_graceful_if_the_process_follows() {
        let sleeper = Sleeper::start();
        let identity = sleeper.identity();
        assert!(!identity.wait_ended(Duration::ZERO).unwrap());
        let ended = identity.end(Duration::from_secs(10)).unwrap();
        assert_eq!(ended, Ended::Gracefully);
        assert!(!identity.is_alive());
    }
}

//! Waits for changes of files in a folder, and for the end of the reader.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

/// Interval of looks with notifications, which some network file systems do not send.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Interval of looks without notifications.
const DEAF_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Bytes of notifications that are read at once.
const EVENT_BYTES: usize = 4096;

/// Notifications of changes in a folder.
#[derive(Debug)]
pub(super) struct Changes {
    /// `None` if the system has no more watches.
    notifications: Option<OwnedFd>,
}

/// Why the wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// A file may have changed.
    Changed,
    /// There may be other files.
    Created,
    /// Standard output has no reader any more.
    ReaderGone,
}

impl Changes {
    /// Watches a folder from now on.
    pub(super) fn of(folder: &Path) -> Self {
        let watch = || {
            let notifications = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
            let flags = WatchFlags::MODIFY
                | WatchFlags::CREATE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::DELETE
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            inotify::add_watch(&notifications, folder, flags)?;
            rustix::io::Result::Ok(notifications)
        };
        Self { notifications: watch().ok() }
    }

    /// Waits for a change, or for seconds at most.
    ///
    /// # Errors
    /// If the system cannot wait.
    pub(super) fn wait(&self) -> io::Result<Woken> {
        let stdout = io::stdout();
        // Errors and hang-ups are always reported.
        let mut sources = vec![PollFd::new(&stdout, PollFlags::empty())];
        sources.extend(self.notifications.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let time = if self.notifications.is_some() { LOOK_EVERY } else { DEAF_LOOK_EVERY };
        match poll(&mut sources, Timespec::try_from(time).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if sources[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return Ok(Woken::ReaderGone);
        }
        Ok(if self.has_created() { Woken::Created } else { Woken::Changed })
    }

    /// Reads the notifications; returns whether there may be other files.
    fn has_created(&self) -> bool {
        let Some(notifications) = &self.notifications else { return true };
        let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
        let mut reader = Reader::new(notifications, &mut buffer);
        let mut has_created = false;
        // Without more events, the read fails.
        while let Ok(event) = reader.next() {
            has_created |=
                event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::QUEUE_OVERFLOW);
        }
        has_created
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_ends_the_wait_with_and_without_notifications() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Changes::of(folder.path());
        assert!(changes.notifications.is_some());
        std::fs::write(folder.path().join("a.log"), "one").unwrap();
        assert_eq!(changes.wait().unwrap(), Woken::Created);
        std::fs::write(folder.path().join("a.log"), "two").unwrap();
        assert_eq!(changes.wait().unwrap(), Woken::Changed);
        let deaf = Changes::of(&folder.path().join("missing"));
        assert!(deaf.notifications.is_none());
        assert_eq!(deaf.wait().unwrap(), Woken::Created);
    }
}

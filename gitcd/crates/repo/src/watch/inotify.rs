//! Notifications of changed files from Linux (inotify).

use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};

use super::follower::DirtySet;

/// Limit of nested folders of references; Git has none, but path names have.
const MAX_DEPTH: usize = 100;

/// Notifies of everything below `refs/`, and of `packed-refs`.
#[derive(Debug)]
pub(super) struct Notifier {
    events: OwnedFd,
    root: PathBuf,
    /// Names of watched folders, relative to the repository; its own is empty.
    folders: HashMap<i32, String>,
}

impl Notifier {
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut notifier = Self { events, root: root.to_owned(), folders: HashMap::new() };
        notifier.watch("")?;
        notifier.watch_tree("refs", 0)?;
        Ok(notifier)
    }

    /// Watches all folders that are not watched yet.
    pub(super) fn watch_all(&mut self) {
        if let Err(error) = self.watch("").and_then(|()| self.watch_tree("refs", 0)) {
            tracing::debug!(%error, "not all folders of references are watched");
        }
    }

    fn watch(&mut self, name: &str) -> io::Result<()> {
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        let watch = inotify::add_watch(&self.events, self.root.join(name), flags)?;
        self.folders.insert(watch, name.to_owned());
        Ok(())
    }

    /// Watches a folder before its content, so that folders created meanwhile are noticed.
    fn watch_tree(&mut self, name: &str, depth: usize) -> io::Result<()> {
        match self.watch(name) {
            Ok(()) => {}
            // Deleted meanwhile.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        for entry in fs::read_dir(self.root.join(name)).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && depth < MAX_DEPTH
                && let Ok(part) = entry.file_name().into_string()
            {
                self.watch_tree(&format!("{name}/{part}"), depth + 1)?;
            }
        }
        Ok(())
    }

    /// Reads all pending notifications.
    pub(super) fn read_events(&mut self, doubt: &mut DirtySet) {
        let mut buffer = [MaybeUninit::uninit(); 8 << 10];
        let mut events = Vec::new();
        let mut reader = Reader::new(&self.events, &mut buffer);
        // Ends when there are no more.
        while let Ok(event) = reader.next() {
            let name = event.file_name().and_then(|name| name.to_str().ok()).map(ToOwned::to_owned);
            events.push((event.wd(), event.events(), name));
        }
        for (watch, flags, name) in events {
            self.take(watch, flags, name.as_deref(), doubt);
        }
    }

    fn take(&mut self, watch: i32, flags: ReadFlags, name: Option<&str>, doubt: &mut DirtySet) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            doubt.everything = true;
            return;
        }
        if flags.contains(ReadFlags::IGNORED) {
            // The repository or its `refs` folder was removed.
            doubt.everything |= self.folders.remove(&watch).is_some_and(|folder| folder.is_empty() || folder == "refs");
            return;
        }
        let (Some(folder), Some(name)) = (self.folders.get(&watch), name) else { return };
        if folder.is_empty() {
            doubt.packed |= name == "packed-refs";
            doubt.everything |= name == "refs";
            return;
        }
        let path = format!("{folder}/{name}");
        if !flags.contains(ReadFlags::ISDIR) {
            // Ignore locks, which come with every change: their file is reported too.
            if path.rsplit_once('.').is_none_or(|(_, extension)| extension != "lock") {
                doubt.files.insert(path);
            }
            return;
        }
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)
            && let Err(error) = self.watch_tree(&path, 0)
        {
            tracing::warn!(%error, path, "cannot watch a folder of references; polling it");
        }
        doubt.folders.insert(path);
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

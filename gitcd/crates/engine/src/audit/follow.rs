//! Reads audit events from a log file of kube-apiserver, as it grows.
//!
//! The file has one event a line. kube-apiserver renames it at its size limit and starts another; other programs truncate it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Audit;
use super::event::Event;

/// How often the file is read.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Longest line that is parsed; longer ones are skipped.
const MAX_LINE: usize = 8 << 20;
/// Bytes per read.
const CHUNK: usize = 256 << 10;
/// Bytes per step, so that a caller can stop between steps.
const MAX_STEP: usize = 16 << 20;

/// The position in a log file that may be renamed or truncated.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// The open file, with its inode and the position in it.
    file: Option<(File, u64, u64)>,
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// The rest of the current line is skipped: it is too long, or its start was not read.
    skips: bool,
    /// Whether the file has been opened before: events from before the start are not read.
    has_started: bool,
}

impl Follower {
    /// Returns a follower of a file, which need not exist yet. It skips what the file has at its first step.
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, line: Vec::new(), skips: false, has_started: false }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what was appended since the last step, and adds its events. Blocks on the disk.
    ///
    /// # Errors
    /// Those of the system; the next step continues. A missing file is none.
    pub fn step(&mut self, audit: &Audit) -> io::Result<()> {
        let mut events = Vec::new();
        let mut left = MAX_STEP;
        let result = self.read(&mut left, &mut |line| match serde_json::from_slice::<Event>(line) {
            Ok(event) => events.push(event),
            Err(_) => audit.refuse(),
        });
        if !events.is_empty() {
            audit.add(&events);
        }
        result
    }

    fn read(&mut self, left: &mut usize, found: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        if self.file.is_none() {
            self.open()?;
        }
        self.drain(left, found)?;
        // The old file was read to its end before it is closed.
        let inode = match std::fs::metadata(&self.path) {
            Ok(metadata) => Some(metadata.ino()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let is_moved = self.file.as_ref().is_some_and(|(_, own, _)| Some(*own) != inode);
        if is_moved && *left > 0 {
            // Once more: it may have grown until it was renamed.
            self.drain(left, found)?;
            self.restart(None);
            self.open()?;
            self.drain(left, found)?;
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A file that appears later is read from its start.
                self.has_started = true;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let mut position = 0;
        if !self.has_started && metadata.len() > 0 {
            position = file.seek(SeekFrom::Start(metadata.len() - 1))?;
            // Reads the last byte, to know whether the next byte starts a line.
            self.skips = true;
        }
        self.has_started = true;
        self.file = Some((file, metadata.ino(), position));
        Ok(())
    }

    fn restart(&mut self, file: Option<(File, u64, u64)>) {
        self.file = file;
        self.line.clear();
        self.skips = false;
    }

    /// Reads the open file to its end.
    fn drain(&mut self, left: &mut usize, found: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let Some((mut file, inode, mut position)) = self.file.take() else { return Ok(()) };
        if file.metadata()?.len() < position {
            // Truncated: what it has now is new.
            position = file.seek(SeekFrom::Start(0))?;
            self.restart(None);
        }
        let mut buffer = vec![0; CHUNK];
        let result = loop {
            if *left == 0 {
                break Ok(());
            }
            match file.read(&mut buffer) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    position += count as u64;
                    *left = left.saturating_sub(count);
                    self.split(&buffer[..count], found);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.file = Some((file, inode, position));
        result
    }

    /// Calls `found` with each line that ends in `bytes`.
    fn split(&mut self, bytes: &[u8], found: &mut dyn FnMut(&[u8])) {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let is_complete = parts.peek().is_some();
            if !self.skips {
                self.line.extend_from_slice(part);
            }
            if is_complete {
                if !self.skips && !self.line.trim_ascii().is_empty() {
                    found(&self.line);
                }
                self.line.clear();
                self.skips = false;
            } else if self.line.len() > MAX_LINE {
                self.line = Vec::new();
                self.skips = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    struct Log {
        folder: tempfile::TempDir,
        follower: Follower,
    }

    impl Log {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("the temporary folder is writable");
            let follower = Follower::new(folder.path().join("audit.log"));
            Self { folder, follower }
        }

        fn append(&self, text: &str) {
            let path = self.follower.path();
            let mut file = File::options().append(true).create(true).open(path).expect("the file is writable");
            file.write_all(text.as_bytes()).expect("the disk has room");
        }

        fn lines(&mut self) -> Vec<String> {
            let mut lines = Vec::new();
            let mut left = MAX_STEP;
            let mut found = |line: &[u8]| lines.push(String::from_utf8_lossy(line).into_owned());
            self.follower.read(&mut left, &mut found).expect("the file is readable");
            lines
        }
    }

    #[test]
    fn lines_are_read_once_they_are_complete_and_only_new_ones() {
        let mut log = Log::new();
        log.append("old\nhalf of an old ");
        assert!(log.lines().is_empty());
        log.append("one\nnew\nha");
        assert_eq!(log.lines(), ["new"]);
        log.append("lf\n\n");
        assert_eq!(log.lines(), ["half"]);
        assert!(log.lines().is_empty());
    }

    #[test]
    fn a_file_that_ends_with_a_whole_line_is_followed_from_there() {
        let mut log = Log::new();
        log.append("old\n");
        assert!(log.lines().is_empty());
        log.append("new\n");
        assert_eq!(log.lines(), ["new"]);
    }

    #[test]
    fn a_file_that_appears_later_is_read_from_its_start() {
        let mut log = Log::new();
        assert!(log.lines().is_empty());
        log.append("first\n");
        assert_eq!(log.lines(), ["first"]);
    }

    #[test]
    fn nothing_is_lost_when_the_file_is_renamed() {
        let mut log = Log::new();
        assert!(log.lines().is_empty());
        log.append("one\n");
        assert_eq!(log.lines(), ["one"]);
        log.append("two\n");
        std::fs::rename(log.follower.path(), log.folder.path().join("audit-1.log")).expect("the folder is writable");
        log.append("three\n");
        assert_eq!(log.lines(), ["two", "three"]);
        std::fs::rename(log.follower.path(), log.folder.path().join("audit-2.log")).expect("the folder is writable");
        assert!(log.lines().is_empty());
        log.append("four\n");
        assert_eq!(log.lines(), ["four"]);
    }

    #[test]
    fn a_truncated_file_is_read_again_from_its_start() {
        let mut log = Log::new();
        assert!(log.lines().is_empty());
        log.append("a long line\nhalf");
        assert_eq!(log.lines(), ["a long line"]);
        File::create(log.follower.path()).expect("the file is writable");
        log.append("new\n");
        assert_eq!(log.lines(), ["new"]);
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_and_takes_no_memory() {
        let mut log = Log::new();
        assert!(log.lines().is_empty());
        for _ in 0..12 {
            log.append(&"x".repeat(1 << 20));
        }
        assert!(log.lines().is_empty());
        assert!(log.follower.line.capacity() < CHUNK);
        log.append("\nnext\n");
        assert_eq!(log.lines(), ["next"]);
    }

    #[test]
    fn lines_that_are_no_events_are_counted() {
        let mut log = Log::new();
        let audit = Audit::new(super::super::Settings::default(), gitcd_core::keyspace::KeySpace::new("/", [""; 0]));
        log.follower.step(&audit).expect("a missing file is no error");
        log.append("{\"stage\":\"ResponseComplete\"}\nno event\n");
        log.follower.step(&audit).expect("the file is readable");
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((count(&audit.counters().events), count(&audit.counters().invalid)), (1, 1));
    }
}

//! A log that is written, rotated and truncated while it is read.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use trishanku::plane::log;

use super::lines::{Lines, Print};
use super::tail;

const CHUNK_BYTES: usize = 64 << 10;

/// A log, and how far it was read.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    open: Option<Open>,
    lines: Lines,
    /// The previous log when the current one was opened or truncated: another one has the rest of the current one.
    previous: Option<Stamp>,
}

#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    /// The bytes before it were read.
    position: u64,
}

/// Identifies the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    id: (u64, u64),
    len: u64,
    modified: (i64, i64),
}

impl LogFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None, lines: Lines::default(), previous: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there was a file to read.
    pub(super) fn exists(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the file at its last `tail` lines, or at its start. Without a file, it stays closed.
    pub(super) fn open(&mut self, tail: Option<u64>) -> io::Result<()> {
        // Before the file: if it is rotated in between, the previous log is another one than now.
        self.previous = Stamp::of(&log::previous(&self.path))?;
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        let position = tail.map_or(Ok(0), |lines| tail::start(&file, metadata.len(), lines))?;
        self.open = Some(Open { file, id: id(&metadata), position });
        Ok(())
    }

    /// Prints the complete lines that were written since the last read. Ends at the length that the file has now.
    pub(super) fn read(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let len = open.file.metadata()?.len();
        open.position = read(&open.file, open.position, len, &mut self.lines, print)?;
        Ok(())
    }

    /// Prints the last line, although it has no line break.
    pub(super) fn finish(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        self.lines.finish(print)
    }

    /// Prints the complete lines that were written since the last read, also if the file was rotated or truncated since.
    pub(super) fn advance(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        loop {
            if self.open.is_none() {
                self.open(None)?;
            }
            let Some(open) = &mut self.open else { return Ok(()) };
            // Before the read: nothing is written to the old file once there is another one.
            let is_replaced = Stamp::of(&self.path)?.is_some_and(|stamp| stamp.id != open.id);
            if open.file.metadata()?.len() < open.position {
                self.read_rest(print)?;
            }
            self.read(print)?;
            if !is_replaced {
                return Ok(());
            }
            self.finish(print)?;
            self.open = None;
        }
    }

    /// Prints the rest of a log that was copied and truncated, from the copy.
    fn read_rest(&mut self, print: &mut Print<'_>) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = log::previous(&self.path);
        let copy = Stamp::of(&path)?;
        if let Some(copy) = copy.filter(|copy| Some(*copy) != self.previous) {
            read(&File::open(path)?, open.position, copy.len, &mut self.lines, print)?;
        }
        self.previous = copy;
        open.position = 0;
        self.finish(print)
    }
}

/// Reads a part of a file; returns where it ended, which is earlier if the file was truncated meanwhile.
fn read(file: &File, from: u64, to: u64, lines: &mut Lines, print: &mut Print<'_>) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut position = from;
    while position < to {
        let most = usize::try_from(to - position).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        match file.read_at(&mut chunk[..most], position) {
            Ok(0) => break,
            Ok(count) => {
                lines.add(&chunk[..count], print)?;
                position += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(position)
}

fn id(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

impl Stamp {
    /// Returns the stamp of a file; `None` if there is none.
    fn of(path: &Path) -> io::Result<Option<Self>> {
        match path.metadata() {
            Ok(metadata) => Ok(Some(Self {
                id: id(&metadata),
                len: metadata.len(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write as _;

    use super::*;

    struct Fixture {
        folder: tempfile::TempDir,
        log: LogFile,
    }

    impl Fixture {
        fn new(text: &str, tail: Option<u64>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let mut log = LogFile::new(folder.path().join("a.log"));
            if !text.is_empty() {
                std::fs::write(&log.path, text).unwrap();
            }
            log.open(tail).unwrap();
            Self { folder, log }
        }

        fn append(&self, text: &str) {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.log.path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        /// As the supervisor does with a large log.
        fn copy_and_truncate(&self) {
            std::fs::copy(&self.log.path, self.folder.path().join("a.log.1")).unwrap();
            OpenOptions::new().write(true).open(&self.log.path).unwrap().set_len(0).unwrap();
        }

        fn advance(&mut self) -> String {
            let mut found = Vec::new();
            let mut print = |line: &[u8]| {
                found.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(())
            };
            self.log.advance(&mut print).unwrap();
            found.join(" ")
        }
    }

    #[test]
    fn complete_lines_are_printed_once() {
        let mut it = Fixture::new("1\n2\n3", Some(2));
        assert_eq!(it.advance(), "2");
        it.append("33\n4\n5");
        assert_eq!(it.advance(), "333 4");
        assert_eq!(it.advance(), "");
    }

    #[test]
    fn a_log_may_start_later() {
        let mut it = Fixture::new("", Some(0));
        assert_eq!(it.advance(), "");
        assert!(!it.log.exists());
        it.append("1\n");
        assert_eq!(it.advance(), "1");
    }

    #[test]
    fn a_restart_continues_with_the_new_log_after_the_rest_of_the_old_one() {
        let mut it = Fixture::new("1\n", None);
        assert_eq!(it.advance(), "1");
        it.append("2\n3");
        log::rotate(&it.log.path).unwrap();
        assert_eq!(it.advance(), "2");
        it.append("4\n");
        assert_eq!(it.advance(), "3 4");
        // Two starts between two reads.
        log::rotate(&it.log.path).unwrap();
        it.append("5\n");
        assert_eq!(it.advance(), "5");
    }

    #[test]
    fn nothing_is_missing_or_repeated_when_a_large_log_is_copied_and_truncated() {
        let mut it = Fixture::new("1\n2\n", None);
        assert_eq!(it.advance(), "1 2");
        it.append("3\n4");
        it.copy_and_truncate();
        assert_eq!(it.advance(), "3 4");
        it.append("5\n");
        assert_eq!(it.advance(), "5");
        it.append("6 is longer\n");
        assert_eq!(it.advance(), "6 is longer");
        it.append("7\n");
        it.copy_and_truncate();
        it.append("8\n");
        assert_eq!(it.advance(), "7 8");
    }

    #[test]
    fn a_log_that_was_truncated_without_a_copy_starts_over() {
        let mut it = Fixture::new("1\n", None);
        std::fs::write(it.folder.path().join("a.log.1"), "of an earlier run, longer than the log\n").unwrap();
        it.log.open(None).unwrap();
        assert_eq!(it.advance(), "1");
        it.append("2\n");
        OpenOptions::new().write(true).open(&it.log.path).unwrap().set_len(0).unwrap();
        assert_eq!(it.advance(), "");
        it.append("3\n");
        assert_eq!(it.advance(), "3");
    }
}

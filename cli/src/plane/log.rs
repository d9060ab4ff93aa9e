//! The components' logs: one file each, with the previous one beside it.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// No line of interest is longer, and reading stays cheap for any size of the log.
const TAIL_BYTES: u64 = 16 << 10;
/// Longer lines are cut, since a message shows several of them on a terminal.
const MAX_LINE_CHARACTERS: usize = 300;
/// A log and its predecessor together take at most twice as much, plus what is written between two checks.
const MAX_BYTES: u64 = 16 << 20;

/// Returns the path of the log before this one.
#[must_use]
pub fn previous(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Moves the previous run's log aside, replacing the one before it.
///
/// # Errors
/// If the file cannot be renamed.
pub fn rotate(path: &Path) -> io::Result<()> {
    match std::fs::rename(path, previous(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Rotates the log of a running component once it exceeds 16 MiB.
///
/// The component keeps the file open and appends to it, so the file is copied and truncated. Lines written in between are
/// lost.
///
/// # Errors
/// If the file cannot be copied or truncated.
pub fn rotate_if_large(path: &Path) -> io::Result<()> {
    rotate_above(path, MAX_BYTES)
}

fn rotate_above(path: &Path, bytes: u64) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(log) if log.len() > bytes => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(()),
    }
    std::fs::copy(path, previous(path))?;
    OpenOptions::new().write(true).open(path)?.set_len(0)
}

/// Returns up to `lines` last lines from the last 16 KiB, each cut at 300 characters; empty if there is no log.
#[must_use]
pub fn tail(path: &Path, lines: usize) -> Vec<String> {
    let read = || {
        let mut file = File::open(path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        io::Result::Ok(bytes)
    };
    // The message that shows these lines names the log even if it cannot be read.
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| cut(line)).collect()
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARACTERS) {
        None => line.to_owned(),
        Some((end, _)) => format!("{}…", &line[..end]),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_last_lines_are_shown_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gitcd.log");
        assert!(tail(&path, 2).is_empty());
        std::fs::write(&path, "a\nb\n\nc\n").unwrap();
        assert_eq!(tail(&path, 2), ["b", "c"]);
        assert_eq!(tail(&path, 9), ["a", "b", "c"]);
        std::fs::write(&path, "ü".repeat(400)).unwrap();
        assert_eq!(tail(&path, 1), [format!("{}…", "ü".repeat(300))]);
    }

    #[test]
    fn a_log_that_is_too_large_is_put_aside_while_it_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        rotate_above(&path, 3).unwrap();
        let mut log = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        log.write_all(b"one").unwrap();
        rotate_above(&path, 3).unwrap();
        log.write_all(b" two").unwrap();
        rotate_above(&path, 3).unwrap();
        log.write_all(b"three").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(std::fs::read_to_string(path.with_extension("log.1")).unwrap(), "one two");
    }

    #[test]
    fn the_previous_log_stays_beside_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gitcd.log");
        rotate(&path).unwrap();
        std::fs::write(&path, "old").unwrap();
        rotate(&path).unwrap();
        assert!(!path.exists());
        let kept = std::fs::read_to_string(dir.path().join("gitcd.log.1")).unwrap();
        assert_eq!(kept, "old");
    }
}

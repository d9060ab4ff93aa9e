//! The newest writes in a journal that another process writes.
//!
//! Nothing is locked or changed. A write that was acknowledged before a call is visible to it, unless its segment was trimmed.

use std::io;
use std::path::{Path, PathBuf};

use gitcd_core::revision::Revision;

use super::record::{Record, Write};
use super::recovery::frames::Frames;
use super::segment::{FRAME_HEADER, HEADER, sequence_of};

/// Returns the incarnation that wrote the newest segment; `None` if there is no segment.
///
/// # Errors
/// The folder or the segment cannot be read.
pub fn incarnation(folder: &Path) -> io::Result<Option<[u8; 16]>> {
    for (sequence, path) in segments(folder)?.into_iter().rev() {
        if let Some(frames) = open(&path, sequence)? {
            return Ok(Some(frames.header.incarnation));
        }
    }
    Ok(None)
}

/// Calls `visit` with each write after a revision, in order. Reads the segments that have them, one frame at a time.
///
/// A part of a merge that is not complete yet counts as written.
///
/// # Errors
/// The folder or a segment cannot be read.
pub fn writes_after(folder: &Path, after: Revision, mut visit: impl FnMut(Write)) -> io::Result<()> {
    let mut wanted = Vec::new();
    for (sequence, path) in segments(folder)?.into_iter().rev() {
        let mut first = None;
        each_write(&path, sequence, |write| {
            first = Some(write.revision);
            false
        })?;
        wanted.push((sequence, path));
        if first.is_some_and(|first| first.get() <= after.get() + 1) {
            break;
        }
    }
    for (sequence, path) in wanted.into_iter().rev() {
        each_write(&path, sequence, |write| {
            if write.revision > after {
                visit(write);
            }
            true
        })?;
    }
    Ok(())
}

/// Returns the segments by number. A missing folder has none.
fn segments(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        found.extend(sequence_of(&path).map(|sequence| (sequence, path)));
    }
    found.sort();
    Ok(found)
}

/// Opens a segment; `None` if it has been trimmed meanwhile, or has no header yet.
fn open(path: &Path, sequence: u64) -> io::Result<Option<Frames>> {
    match Frames::open(path, sequence) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        frames => frames,
    }
}

/// Calls `visit` with the writes of a segment until it returns false.
fn each_write(path: &Path, sequence: u64, mut visit: impl FnMut(Write) -> bool) -> io::Result<()> {
    let Some(mut frames) = open(path, sequence)? else { return Ok(()) };
    let mut at = HEADER as u64;
    while frames.read(at)?.is_some() {
        let records = Record::decode_all(&frames.payload).map_err(io::Error::other)?;
        for record in records {
            if let Record::Write(write) = record
                && !visit(write)
            {
                return Ok(());
            }
        }
        at += (FRAME_HEADER + frames.payload.len()) as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::record::Change;
    use crate::{Segments, Writer};

    fn write(journal: &mut Writer, revision: i64) {
        let revision = Revision::new(revision);
        let changes = vec![Change { key: format!("/{revision}").into(), put: None }];
        Record::Write(Write { revision, time_ms: 0, client: String::new(), changes }).encode(journal.begin());
        journal.commit(revision).expect("the disk is healthy");
    }

    fn after(folder: &TempDir, revision: i64) -> Vec<i64> {
        let mut found = Vec::new();
        let read = writes_after(folder.path(), Revision::new(revision), |write| found.push(write.revision.get()));
        read.expect("the journal can be read");
        found
    }

    #[test]
    fn writes_are_read_while_the_journal_is_written_and_trimmed() {
        let folder = TempDir::new().expect("the temporary folder is writable");
        assert_eq!(incarnation(folder.path()).expect("there is a folder"), None);
        assert!(after(&folder, 0).is_empty());
        let segments = Arc::new(Segments::default());
        // Small segments, so that a frame fills each.
        let mut journal = Writer::create(folder.path(), [7; 16], 0, 1, segments.clone()).expect("the disk is healthy");
        for revision in 2..=6 {
            write(&mut journal, revision);
            assert_eq!(after(&folder, 1), (2..=revision).collect::<Vec<_>>());
            assert_eq!(after(&folder, revision - 1), [revision]);
            assert!(after(&folder, revision).is_empty());
        }
        assert_eq!(incarnation(folder.path()).expect("there is a segment"), Some([7; 16]));
        let kept = segments.sealed().last().expect("segments are full").0;
        segments.trim(kept).expect("the disk is healthy");
        assert_eq!(after(&folder, 5), [6], "{kept}");
    }
}

//! Replay of a journal, which distinguishes a torn end from damage.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use gitcd_core::revision::Revision;

use super::prefixes::Prefixes;
use super::record::{DecodeError, Record};
use super::segment::Sealed;
use super::segment::{FRAME_HEADER, FRAME_MAGIC, HEADER, Header, Position, Segments, frame_crc, sequence_of};

/// A journal that cannot be replayed. Nothing was changed on disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// Damage in the middle: to continue would lose acknowledged writes.
    #[error(
        "journal {path:?}: damaged at byte {offset}, with readable writes behind it; restore this file from a copy, \
         or move the folder away to start from the last commit in Git (writes after it are lost)"
    )]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where the damage starts.
        offset: u64,
    },
    /// A frame's checksum is right but its content cannot be decoded.
    #[error("journal {path:?}: cannot understand the frame at byte {offset}")]
    Decode {
        /// The segment.
        path: PathBuf,
        /// Where the frame starts.
        offset: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A segment is missing between two others.
    #[error("journal {folder:?}: segment {missing} is missing; restore it from a copy")]
    Gap {
        /// The journal's folder.
        folder: PathBuf,
        /// The number of the missing segment.
        missing: u64,
    },
    /// A file or folder cannot be read.
    #[error("journal {path:?}: cannot read")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The newest segment cannot be rewritten.
    #[error(transparent)]
    Rewrite(#[from] durable::Error),
}

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// The number of the newest segment, 0 if there is none.
    pub newest: u64,
    /// The incarnation of the newest segment, if there is any.
    pub incarnation: Option<[u8; 16]>,
    /// Bytes of a torn last frame that were dropped.
    pub torn_bytes: u64,
}

/// A decoded record, and the location of its payload.
#[derive(Debug)]
pub struct Replayed {
    /// The record.
    pub record: Record,
    segment: u64,
    payload_offset: u64,
}

impl Replayed {
    /// Returns the record's segment. Those before it can be read already.
    pub fn segment(&self) -> u64 {
        self.segment
    }

    /// Returns the position of a value of this record, given its offset in the payload.
    pub fn position(&self, value_offset: usize, length: usize) -> Position {
        Position { segment: self.segment, offset: self.payload_offset + value_offset as u64, length: length as u32 }
    }
}

/// Calls `replay` with every record of the journal in `folder`, in order, and opens the segments for reading values back: each is
/// added to `segments` once all of its records are replayed.
///
/// Reads each segment once; takes the memory of one segment. A missing folder is an empty journal.
///
/// # Errors
/// [`RecoverError`] for damage before the end. A torn last frame is no error: it was never acknowledged.
pub fn recover(
    folder: &Path,
    segments: &Segments,
    mut replay: impl FnMut(Replayed),
) -> Result<Recovered, RecoverError> {
    let mut found = Recovered { newest: 0, incarnation: None, torn_bytes: 0 };
    let paths = list(folder)?;
    if let Some(pair) = paths.windows(2).find(|pair| pair[0].0 + 1 != pair[1].0) {
        return Err(RecoverError::Gap { folder: folder.to_owned(), missing: pair[0].0 + 1 });
    }
    let mut last = Revision::ZERO;
    for (index, (sequence, path)) in paths.iter().enumerate() {
        let newest = index + 1 == paths.len();
        let read = |source| RecoverError::Read { path: path.clone(), source };
        let corrupt = |offset: usize| RecoverError::Corrupt { path: path.clone(), offset: offset as u64 };
        let content = std::fs::read(path).map_err(read)?;
        let Some(header) = Header::decode(&content).filter(|header| header.sequence == *sequence) else {
            return Err(corrupt(0));
        };
        let mut at = HEADER;
        while let Some(payload) = frame_at(&content, &header, at) {
            let records = Record::decode_all(payload).map_err(|source| RecoverError::Decode {
                path: path.clone(),
                offset: at as u64,
                source,
            })?;
            let payload_offset = (at + FRAME_HEADER) as u64;
            for record in records {
                if let Record::Write(write) = &record {
                    last = last.max(write.revision);
                }
                replay(Replayed { record, segment: *sequence, payload_offset });
            }
            at += FRAME_HEADER + payload.len();
        }
        let torn = content[at..].iter().rposition(|byte| *byte != 0).map_or(0, |end| end + 1);
        if torn > 0 && (!newest || has_frame_behind(&content, &header, at)) {
            return Err(corrupt(at));
        }
        found.torn_bytes += torn as u64;
        if newest {
            // Rewrite the segment: once the next one follows, a torn end would look like damage. And the bytes that were read may
            // not be durable (after a crash before the fsync, or an fsync that failed).
            durable::replace(path, &content[..at])?;
        }
        let file = File::open(path).map_err(read)?;
        segments.add(*sequence, path.clone(), file);
        segments.seal(Sealed { sequence: *sequence, last });
        found.newest = *sequence;
        found.incarnation = Some(header.incarnation);
    }
    Ok(found)
}

/// Returns the segments by number. Deletes a newest segment without a header: the machine crashed while creating it, before
/// anything was written to it.
fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, RecoverError> {
    let read = |source| RecoverError::Read { path: folder.to_owned(), source };
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(read)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        if let Some(sequence) = sequence_of(&path) {
            paths.push((sequence, path));
        }
    }
    paths.sort();
    if let Some((_, path)) = paths.last() {
        let content = std::fs::read(path).map_err(read)?;
        let empty = content.iter().skip(HEADER).all(|byte| *byte == 0);
        if empty && Header::decode(&content).is_none() {
            std::fs::remove_file(path).map_err(read)?;
            paths.pop();
        }
    }
    Ok(paths)
}

/// Returns the payload of the frame that starts at `at`, if it is complete.
fn frame_at<'a>(content: &'a [u8], header: &Header, at: usize) -> Option<&'a [u8]> {
    let (payload, crc) = head_at(content, at)?;
    let payload = &content[payload];
    (frame_crc(&header.id, at as u64, payload) == crc).then_some(payload)
}

/// Returns the range of the payload of a frame that starts at `at`, and the expected checksum.
fn head_at(content: &[u8], at: usize) -> Option<(Range<usize>, u32)> {
    let head = content.get(at..at + FRAME_HEADER)?;
    if head[..4] != FRAME_MAGIC {
        return None;
    }
    let length = u32::from_le_bytes(head[4..8].try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(head[8..12].try_into().ok()?);
    let start = at + FRAME_HEADER;
    let end = start.checked_add(length).filter(|end| *end <= content.len())?;
    Some((start..end, crc))
}

/// Returns whether a complete frame starts after `at`. Costs one pass over the segment, however many candidates it contains.
fn has_frame_behind(content: &[u8], header: &Header, at: usize) -> bool {
    let prefixes = Prefixes::of(content);
    let candidates = content[at + 1..].windows(4).enumerate().filter(|(_, bytes)| *bytes == FRAME_MAGIC);
    candidates.map(|(index, _)| at + 1 + index).any(|start| {
        let found = head_at(content, start);
        found.is_some_and(|(payload, crc)| {
            prefixes.frame_crc(&header.id, start as u64, payload.start, payload.end) == crc
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Writer;
    use crate::fault::{self, Fault};
    use crate::writer::AppendError;

    const INCARNATION: [u8; 16] = [7; 16];

    fn writer(folder: &Path, previous: u64) -> Writer {
        Writer::create(folder, INCARNATION, previous, 4096, Arc::new(Segments::default())).unwrap()
    }

    fn append(writer: &mut Writer, revision: i64) -> Result<(), AppendError> {
        let record = Record::Compact(Revision::new(revision));
        let frame = writer.begin();
        record.encode(frame);
        // A payload that spans several sectors.
        (0..40).for_each(|id| Record::Revoke { id }.encode(frame));
        writer.commit(Revision::new(revision)).map(|_| ())
    }

    fn replayed(folder: &Path) -> Result<Vec<i64>, RecoverError> {
        let mut revisions = Vec::new();
        recover(folder, &Segments::default(), |replayed| {
            if let Record::Compact(revision) = replayed.record {
                revisions.push(revision.get());
            }
        })?;
        Ok(revisions)
    }

    fn segment(folder: &Path, sequence: u64) -> PathBuf {
        folder.join(crate::segment::file_name(sequence))
    }

    #[test]
    fn appended_frames_come_back_in_order_across_segments() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        (1..=200).for_each(|revision| append(&mut journal, revision).unwrap());
        assert!(list(folder.path()).unwrap().len() > 3);
        assert_eq!(replayed(folder.path()).unwrap(), (1..=200).collect::<Vec<_>>());
    }

    #[test]
    fn torn_last_frame_is_dropped_at_every_length_and_earlier_writes_survive() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        (1..=3).for_each(|revision| append(&mut journal, revision).unwrap());
        let end = journal.value_base().1;
        drop(journal);
        let path = segment(folder.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        let frame = (end as usize - HEADER) / 3;
        for cut in 1..frame {
            for fill in [false, true] {
                let mut torn = whole[..end as usize - cut].to_vec();
                torn.resize(if fill { whole.len() } else { torn.len() }, 0);
                std::fs::write(&path, &torn).unwrap();
                assert_eq!(replayed(folder.path()).unwrap(), [1, 2], "cut {cut}");
                // The torn end is gone, so the next process can append.
                assert_eq!(std::fs::metadata(&path).unwrap().len(), end - frame as u64);
            }
        }
    }

    #[test]
    fn damage_before_the_end_names_file_and_offset_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        (1..=3).for_each(|revision| append(&mut journal, revision).unwrap());
        drop(journal);
        let path = segment(folder.path(), 1);
        let whole = std::fs::read(&path).unwrap();
        for offset in HEADER..HEADER + 100 {
            let mut damaged = whole.clone();
            damaged[offset] ^= 0x40;
            std::fs::write(&path, &damaged).unwrap();
            let error = replayed(folder.path()).unwrap_err();
            assert!(
                matches!(&error, RecoverError::Corrupt { path: p, offset } if *p == path && *offset < 300),
                "{error}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn a_missing_segment_is_an_error_and_a_half_made_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        (1..=100).for_each(|revision| append(&mut journal, revision).unwrap());
        let newest = journal.value_base().0;
        drop(journal);
        std::fs::write(segment(folder.path(), newest + 1), [0; 4096]).unwrap();
        assert_eq!(replayed(folder.path()).unwrap().len(), 100);
        std::fs::remove_file(segment(folder.path(), 2)).unwrap();
        assert!(matches!(replayed(folder.path()), Err(RecoverError::Gap { missing: 2, .. })));
    }

    /// Clients choose the bytes of values, and the machine may crash while writing one. To checksum the frame of each of these
    /// heads would read a terabyte.
    #[test]
    fn a_torn_value_full_of_heads_of_frames_costs_one_pass() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        append(&mut journal, 1).unwrap();
        let end = journal.value_base().1 as usize;
        drop(journal);
        let path = segment(folder.path(), 1);
        let mut content = std::fs::read(&path).unwrap();
        content.truncate(end);
        let head = [&FRAME_MAGIC[..], &(8_u32 << 20).to_le_bytes()].concat();
        content.extend(head.repeat(128 << 10));
        content.resize(16 << 20, 0);
        std::fs::write(&path, &content).unwrap();
        assert_eq!(replayed(folder.path()).unwrap(), [1]);
    }

    #[test]
    fn a_second_life_appends_behind_the_first() {
        let folder = tempfile::tempdir().unwrap();
        append(&mut writer(folder.path(), 0), 1).unwrap();
        assert_eq!(replayed(folder.path()).unwrap(), [1]);
        append(&mut writer(folder.path(), 1), 2).unwrap();
        assert_eq!(replayed(folder.path()).unwrap(), [1, 2]);
    }

    #[test]
    fn after_a_failed_fsync_nothing_more_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = writer(folder.path(), 0);
        append(&mut journal, 1).unwrap();
        fault::fail_next(Fault::Fsync);
        assert!(matches!(append(&mut journal, 2), Err(AppendError::Broken { .. })));
        assert!(matches!(append(&mut journal, 3), Err(AppendError::Broken { .. })));
    }
}

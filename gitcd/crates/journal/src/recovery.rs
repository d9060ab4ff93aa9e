//! Replay of a journal, which distinguishes a torn end from damage.

pub(crate) mod frames;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use gitcd_core::revision::Revision;

use self::frames::{Frames, last_byte};
use super::record::{DecodeError, Record};
use super::segment::{FRAME_HEADER, HEADER, Header, Kind, Position, Sealed, Segments, sequence_of};

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
/// Reads each segment once, and what was written in parts twice; takes the memory of one frame. A missing folder is an empty
/// journal.
///
/// # Errors
/// [`RecoverError`] for damage before the end. A torn last frame is no error, and neither are parts that no frame completes: they
/// were never acknowledged.
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
        let corrupt = |offset| RecoverError::Corrupt { path: path.clone(), offset };
        let Some(mut frames) = Frames::open(path, *sequence).map_err(read)? else { return Err(corrupt(0)) };
        let mut decode = |frames: &Frames, at: u64| {
            let records = Record::decode_all(&frames.payload).map_err(|source| RecoverError::Decode {
                path: path.clone(),
                offset: at,
                source,
            })?;
            for record in records {
                if let Record::Write(write) = &record {
                    last = last.max(write.revision);
                }
                replay(Replayed { record, segment: *sequence, payload_offset: at + FRAME_HEADER as u64 });
            }
            Ok::<_, RecoverError>(())
        };
        // `complete` is the end of the last complete frame; behind it are parts that no frame has completed yet, up to `at`.
        let (mut complete, mut at) = (HEADER as u64, HEADER as u64);
        let mut parts = Vec::new();
        while let Some(kind) = frames.read(at).map_err(read)? {
            let end = at + FRAME_HEADER as u64 + frames.payload.len() as u64;
            if kind == Kind::Part {
                parts.push(at);
            } else {
                if !parts.is_empty() {
                    for part in parts.drain(..) {
                        frames.read(part).map_err(read)?.ok_or_else(|| corrupt(part))?;
                        decode(&frames, part)?;
                    }
                    frames.read(at).map_err(read)?.ok_or_else(|| corrupt(at))?;
                }
                decode(&frames, at)?;
                complete = end;
            }
            at = end;
        }
        let torn_to = frames.last_byte(at).map_err(read)?;
        if torn_to.is_some() && (!newest || frames.has_frame_behind(at).map_err(read)?) {
            return Err(corrupt(at));
        }
        if at > complete && !newest {
            return Err(corrupt(complete));
        }
        found.torn_bytes += torn_to.unwrap_or(at) - complete;
        if newest {
            // Rewrite the segment: once the next one follows, a torn end would look like damage. And the bytes that were read may
            // not be durable (after a crash before the fsync, or an fsync that failed).
            durable::replace_with(path, |file| frames.copy(complete, file))?;
        }
        let file = File::open(path).map_err(read)?;
        segments.add(*sequence, path.clone(), file);
        segments.seal(Sealed { sequence: *sequence, last });
        found.newest = *sequence;
        found.incarnation = Some(frames.header.incarnation);
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
        let mut head = Vec::new();
        let mut file = File::open(path).map_err(read)?;
        (&mut file).take(HEADER as u64).read_to_end(&mut head).map_err(read)?;
        if Header::decode(&head).is_none() && last_byte(&file, HEADER as u64).map_err(read)?.is_none() {
            std::fs::remove_file(path).map_err(read)?;
            paths.pop();
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests;

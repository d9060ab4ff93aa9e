//! The append path: one write and one fsync for all records of a frame.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gitcd_core::durable;
use gitcd_core::error::chain;
use gitcd_core::revision::Revision;
use rustix::fs::FallocateFlags;

use super::segment::{FRAME_HEADER, HEADER, Header, Kind, Sealed, Segments, file_name, frame_crc};

/// A failed append, and whether appends may continue.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing became durable and the journal is unchanged: the caller undoes the batch and may continue.
    #[error("journal {path:?}: no space left on the device; free some, writes then work again")]
    NoSpace {
        /// The segment.
        path: PathBuf,
    },
    /// What is on disk is unknown, so the journal refuses appends until it is reopened. A failed fsync must not be retried: the
    /// kernel may have dropped the data and would report success.
    #[error("journal {path:?}: {action} failed; writes are refused until gitcd is restarted")]
    Broken {
        /// The segment.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// The appender of a branch's journal, owned by the store's writer thread.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    incarnation: [u8; 16],
    segment_bytes: u64,
    segments: Arc<Segments>,
    current: Current,
    broken: bool,
    write_took: Duration,
    frame: Vec<u8>,
}

/// Initial capacity of the buffer of frames.
const START_BYTES: usize = 256 << 10;
/// Capacity that the buffer keeps while frames are smaller.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Debug)]
struct Current {
    header: Header,
    path: PathBuf,
    file: File,
    /// End of the last frame.
    end: u64,
    /// Where the parts start that no frame has completed yet.
    parts: Option<u64>,
    /// Last revision in the segment, for trimming.
    last: Revision,
}

impl Writer {
    /// Starts a new segment after `previous` (0 if there is none): replayed segments are never appended to.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create(
        folder: &Path,
        incarnation: [u8; 16],
        previous: u64,
        segment_bytes: u64,
        segments: Arc<Segments>,
    ) -> Result<Self, durable::Error> {
        let current = start_segment(folder, incarnation, previous + 1, segment_bytes, &segments)?;
        Ok(Self {
            folder: folder.to_owned(),
            incarnation,
            segment_bytes,
            segments,
            current,
            broken: false,
            write_took: Duration::ZERO,
            frame: Vec::with_capacity(START_BYTES),
        })
    }

    /// Starts the next frame and returns the buffer for its payload, with room for the frame's header in front.
    /// [`Writer::value_base`] is the position of the buffer's byte 0.
    pub fn begin(&mut self) -> &mut Vec<u8> {
        // What a large frame took is given back once frames are small again.
        if self.frame.capacity() > KEPT_BYTES && self.frame.len() < self.frame.capacity() / 4 {
            self.frame = Vec::with_capacity(START_BYTES);
        }
        self.frame.clear();
        self.frame.resize(FRAME_HEADER, 0);
        &mut self.frame
    }

    /// Returns the buffer of the current frame.
    pub fn frame(&mut self) -> &mut Vec<u8> {
        &mut self.frame
    }

    /// Returns whether the current frame has no payload, so that there is nothing to commit.
    pub fn is_empty(&self) -> bool {
        self.frame.len() <= FRAME_HEADER
    }

    /// Returns the segment and the file offset of byte 0 of the buffer that [`Writer::begin`] returns.
    pub fn value_base(&self) -> (u64, u64) {
        (self.current.header.sequence, self.current.end)
    }

    /// Returns how long the last frame took to write, without the fdatasync.
    pub fn write_took(&self) -> Duration {
        self.write_took
    }

    /// Makes the current frame durable, and with it the [parts](Self::commit_part) before it: one write and one fdatasync. `last` is
    /// the highest revision in it. Returns the segment that was sealed, if the frame filled it.
    ///
    /// # Errors
    /// [`AppendError`], which says whether the caller may continue. If it may, and there are parts, it has to
    /// [give them up](Self::give_up).
    pub fn commit(&mut self, last: Revision) -> Result<Option<Sealed>, AppendError> {
        if self.is_empty() {
            debug_assert!(self.current.parts.is_none(), "an empty frame completes no parts");
            return Ok(None);
        }
        self.append(Kind::Complete)?;
        self.current.parts = None;
        self.current.last = self.current.last.max(last);
        if self.current.end < self.segment_bytes {
            return Ok(None);
        }
        Ok(self.rotate())
    }

    /// Writes the current frame as a part of what the next [`Self::commit`] completes: until then it counts for nothing, also after
    /// a crash. So changes that are too large for one frame become durable together. All parts are in one segment, which grows
    /// beyond its usual size. One write and one fdatasync; an empty frame is none.
    ///
    /// # Errors
    /// [`AppendError`], as for [`Self::commit`].
    pub fn commit_part(&mut self) -> Result<(), AppendError> {
        if self.is_empty() {
            return Ok(());
        }
        let start = self.current.end;
        self.append(Kind::Part)?;
        self.current.parts.get_or_insert(start);
        Ok(())
    }

    /// Removes the parts that were not completed. One fsync, if there are any.
    ///
    /// # Errors
    /// [`AppendError::Broken`]: the parts may still be there. They count for nothing after a restart.
    pub fn give_up(&mut self) -> Result<(), AppendError> {
        let Some(start) = self.current.parts else { return Ok(()) };
        // Synced before the next frame is written over them: otherwise a crash could leave some of them behind that frame, which
        // would look like damage.
        let cut = self.current.file.set_len(start).and_then(|()| self.current.file.sync_all());
        if let Err(error) = cut {
            self.broken = true;
            return Err(self.broken_by("removing an incomplete merge", error));
        }
        self.current.end = start;
        self.current.parts = None;
        self.segments.cut(self.current.header.sequence, start);
        Ok(())
    }

    fn append(&mut self, kind: Kind) -> Result<(), AppendError> {
        let Ok(payload) = u32::try_from(self.frame.len() - FRAME_HEADER) else {
            self.broken = true;
            return Err(self.broken_by("writing", io::Error::other("the frame is larger than 4 GiB")));
        };
        if self.broken {
            return Err(self.broken_by("writing", io::Error::other("an earlier fsync failed")));
        }
        let offset = self.current.end;
        let crc = frame_crc(&self.current.header.id, kind, offset, &self.frame[FRAME_HEADER..]);
        self.frame[..4].copy_from_slice(&kind.magic());
        self.frame[4..8].copy_from_slice(&payload.to_le_bytes());
        self.frame[8..12].copy_from_slice(&crc.to_le_bytes());
        let started = Instant::now();
        let written = self.current.file.write_all_at(&self.frame, offset);
        self.write_took = started.elapsed();
        let written = written.and_then(|()| fault::strikes(fault::Fault::Full));
        if let Err(error) = written {
            return Err(self.undo(error));
        }
        let synced = self.current.file.sync_data();
        let synced = synced.and_then(|()| fault::strikes(fault::Fault::Fsync));
        if let Err(error) = synced {
            self.broken = true;
            return Err(self.broken_by("fsync", error));
        }
        self.current.end += self.frame.len() as u64;
        if self.current.end > self.segment_bytes {
            self.segments.grown(self.current.header.sequence, self.current.end);
        }
        Ok(())
    }

    /// Starts the next segment and seals the current one. If that fails, for example on a full disk, appends continue: the current
    /// segment grows until there is room.
    fn rotate(&mut self) -> Option<Sealed> {
        let sealed = Sealed { sequence: self.current.header.sequence, last: self.current.last };
        let next =
            start_segment(&self.folder, self.incarnation, sealed.sequence + 1, self.segment_bytes, &self.segments);
        match next {
            Ok(mut next) => {
                next.last = sealed.last;
                self.current = next;
                self.segments.seal(sealed);
                Some(sealed)
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), folder = %self.folder.display(), "cannot start a journal segment; the last one grows");
                None
            }
        }
    }

    /// Removes the bytes that a failed write left after the last frame: otherwise recovery would take them for damage
    /// after the next append.
    fn undo(&mut self, error: io::Error) -> AppendError {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let cut = self.current.file.set_len(self.current.end);
        if full && cut.is_ok() {
            return AppendError::NoSpace { path: self.current.path.clone() };
        }
        self.broken = true;
        self.broken_by("writing", cut.err().unwrap_or(error))
    }

    fn broken_by(&self, action: &'static str, source: io::Error) -> AppendError {
        AppendError::Broken { path: self.current.path.clone(), action, source }
    }
}

fn start_segment(
    folder: &Path,
    incarnation: [u8; 16],
    sequence: u64,
    segment_bytes: u64,
    segments: &Segments,
) -> Result<Current, durable::Error> {
    let header = Header { sequence, id: rand::random(), incarnation };
    let path = folder.join(file_name(sequence));
    let failed = |source| durable::Error::of("create", &path)(source);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(durable::PRIVATE_FILE);
    let file = options.open(&path).map_err(failed)?;
    let prepared = prepare(&file, &header, segment_bytes).map_err(failed).and_then(|()| durable::sync(folder));
    let prepared = prepared.and_then(|()| file.try_clone().map_err(failed));
    let reading = match prepared {
        Ok(reading) => reading,
        Err(error) => {
            // Nothing refers to the file yet; if it stays, it is only a torn last segment.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
    };
    segments.add(sequence, path.clone(), reading);
    Ok(Current { header, path, file, end: HEADER as u64, parts: None, last: Revision::ZERO })
}

fn prepare(file: &File, header: &Header, segment_bytes: u64) -> io::Result<()> {
    // Preallocate, so that an append changes no file size and its fsync no inode: a small write takes a fifth less time. File
    // systems without fallocate are just slower.
    let _ = rustix::fs::fallocate(file, FallocateFlags::empty(), 0, segment_bytes);
    file.write_all_at(&header.encode(), 0)?;
    file.sync_all()
}

/// Faults of a disk, for tests of the journal's users: no file system can be made to fail on demand. Costs one read of a
/// thread-local for each fsync.
#[doc(hidden)]
pub mod fault {
    use std::cell::Cell;
    use std::io;

    /// A fault.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// The disk is full once the frame is written.
        Full,
        /// The fsync fails.
        Fsync,
    }

    thread_local! {
        static NEXT: Cell<Option<(Fault, usize)>> = const { Cell::new(None) };
    }

    /// Makes the next append to a journal on this thread fail.
    pub fn fail_next(fault: Fault) {
        fail_after(fault, 0);
    }

    /// Makes an append to a journal on this thread fail, after `appends` that succeed.
    pub fn fail_after(fault: Fault, appends: usize) {
        NEXT.set(Some((fault, appends)));
    }

    /// Clears the fault; returns whether it was still pending.
    pub fn heal() -> bool {
        NEXT.take().is_some()
    }

    pub(super) fn strikes(fault: Fault) -> io::Result<()> {
        let Some((next, appends)) = NEXT.get().filter(|(next, _)| *next == fault) else { return Ok(()) };
        NEXT.set(appends.checked_sub(1).map(|appends| (next, appends)));
        if appends > 0 {
            return Ok(());
        }
        Err(match fault {
            Fault::Full => io::ErrorKind::StorageFull.into(),
            Fault::Fsync => io::Error::from_raw_os_error(5),
        })
    }
}

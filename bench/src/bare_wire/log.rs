//! The log: what makes writes durable.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FallocateFlags;

use super::keys::KeyVersion;

/// Space is allocated by so many bytes, the size of a segment of gitcd's journal, so that an append changes no file size.
const SEGMENT_BYTES: u64 = 32 << 20;

/// A file that only grows.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    end: u64,
    allocated: u64,
    /// Records that are not written yet.
    waiting: Vec<u8>,
}

impl Log {
    /// Creates an empty log.
    ///
    /// # Errors
    /// Errors of the file system, also if the folder has a log already.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = OpenOptions::new().write(true).create_new(true).open(folder.join("log"))?;
        let mut log = Self { file, end: 0, allocated: 0, waiting: Vec::new() };
        log.allocate(SEGMENT_BYTES)?;
        Ok(log)
    }

    /// Adds a record for the next [`Log::commit`]: the lengths of key and value, the revisions, key, and value.
    pub(super) fn append(&mut self, key: &[u8], version: &KeyVersion) {
        for length in [key.len(), version.value.len()] {
            self.waiting.extend((length as u32).to_le_bytes());
        }
        for number in [version.mod_revision, version.create_revision, version.number] {
            self.waiting.extend(number.to_le_bytes());
        }
        self.waiting.extend(key);
        self.waiting.extend(&version.value[..]);
    }

    /// Makes all records durable with one write and one fdatasync; without records it does nothing.
    ///
    /// # Errors
    /// Errors of the file system. What is on disk is unknown then.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let end = self.end + self.waiting.len() as u64;
        if end > self.allocated {
            self.allocate(end.next_multiple_of(SEGMENT_BYTES))?;
        }
        self.file.write_all_at(&self.waiting, self.end)?;
        self.file.sync_data()?;
        self.end = end;
        self.waiting.clear();
        Ok(())
    }

    fn allocate(&mut self, bytes: u64) -> io::Result<()> {
        // File systems without fallocate are just slower.
        let _ = rustix::fs::fallocate(&self.file, FallocateFlags::empty(), self.allocated, bytes - self.allocated);
        self.allocated = bytes;
        self.file.sync_all()
    }
}

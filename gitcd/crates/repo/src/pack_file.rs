//! Writes a finished pack and its index (version 2) to a repository, durably.

use std::fs;
use std::path::Path;

use gitcd_core::durable;
use sha1::{Digest, Sha1};

use super::pack::{CHECKSUM_LEN, Entry, Sealed, Writer};
pub use super::temporary::WriteError;
use super::temporary::{TemporaryFile, temporary_path};

/// A pack on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    /// Its checksum in hexadecimal, as in the names `pack-<checksum>.pack` and `.idx`.
    pub name: String,
    /// Size of the pack.
    pub pack_bytes: u64,
    /// Size of its index.
    pub index_bytes: u64,
    /// Number of objects in it.
    pub objects: usize,
}

impl Writer {
    /// Writes the pack and its index into `folder` (a repository's `objects/pack`) and starts the next pack.
    ///
    /// Both files are fsynced before they are renamed, and the index is renamed last: a reader that sees an index finds its pack.
    /// The folder is fsynced before this returns.
    ///
    /// # Errors
    /// [`WriteError`]. A failed fsync must not be retried: objects that memory refers to are then not in the repository, so
    /// reopen the branch.
    pub(super) fn finish(&mut self, folder: &Path) -> Result<Finished, WriteError> {
        self.publish(folder, 0)
    }

    /// Does the same as [`Self::finish`], but keeps the pack open while it is smaller than `open_below`: the next call rewrites
    /// it with what was added, and removes the former file. So a repository with many small steps has few packs, and each step is
    /// a delta against the previous one.
    ///
    /// Readers that know the former pack find its objects in the new one when they look again, which Git and libgit2 do.
    ///
    /// # Errors
    /// [`WriteError`], as for [`Self::finish`].
    pub(super) fn publish(&mut self, folder: &Path, open_below: usize) -> Result<Finished, WriteError> {
        let finished = self.write(folder).inspect_err(|_| self.restart())?;
        if let Some(before) = self.written.take().filter(|before| *before != finished.name) {
            // Remove the index first: without it no process starts to use the pack. A file that stays is only a duplicate.
            for extension in ["idx", "pack"] {
                let _ = fs::remove_file(folder.join(format!("pack-{before}.{extension}")));
            }
        }
        if self.spill.is_empty() && self.len() < open_below {
            self.unseal();
            self.written = Some(finished.name.clone());
        } else {
            self.restart();
        }
        Ok(finished)
    }

    fn write(&mut self, folder: &Path) -> Result<Finished, WriteError> {
        if self.spill.is_empty() {
            return write(&self.seal(), folder);
        }
        let pack_bytes = self.len() + CHECKSUM_LEN;
        let (sealed, file) = self.seal_file()?;
        place(&sealed, pack_bytes, file, folder)
    }

    /// Writes the pack and its index into a folder without readers, and starts the next pack. The caller makes both durable.
    ///
    /// # Errors
    /// [`WriteError`].
    pub(super) fn draft(&mut self, folder: &Path) -> Result<(), WriteError> {
        let pack = self.seal();
        let path = folder.join(format!("pack-{}.pack", name(&pack)));
        let written = [(pack.bytes, path.clone()), (&index(&pack)[..], path.with_extension("idx"))]
            .iter()
            .try_for_each(|(bytes, path)| durable::draft(path, 0o444, bytes));
        self.restart();
        Ok(written?)
    }

    /// Returns whether the last written pack is kept open.
    pub(super) fn is_open(&self) -> bool {
        self.written.is_some()
    }
}

fn write(pack: &Sealed<'_>, folder: &Path) -> Result<Finished, WriteError> {
    durable::make_folder_in(folder.parent().unwrap_or(folder), folder)?;
    let file = TemporaryFile::write(temporary_path(folder, "pack"), pack.bytes)?;
    place(pack, pack.bytes.len(), file, folder)
}

/// Makes a written pack visible, with its index. If another process writes the same pack now, one replaces the other without any
/// difference.
fn place(
    pack: &Sealed<'_>,
    pack_bytes: usize,
    pack_file: TemporaryFile,
    folder: &Path,
) -> Result<Finished, WriteError> {
    let (name, index) = (name(pack), index(pack));
    let index_file = TemporaryFile::write(temporary_path(folder, "idx"), &index)?;
    durable::sync_all(&[pack_file.path(), index_file.path()])?;
    pack_file.rename(&folder.join(format!("pack-{name}.pack")))?;
    index_file.rename(&folder.join(format!("pack-{name}.idx")))?;
    durable::sync(folder)?;
    Ok(Finished { name, pack_bytes: pack_bytes as u64, index_bytes: index.len() as u64, objects: pack.entries.len() })
}

/// Returns the checksum, which is part of the pack's file names.
fn name(pack: &Sealed<'_>) -> String {
    use std::fmt::Write as _;
    let mut name = String::with_capacity(40);
    for byte in pack.checksum {
        write!(name, "{byte:02x}").expect("writing to a string does not fail");
    }
    name
}

/// Returns the index: fan-out by first byte, IDs, checksums, offsets, and a table of offsets beyond 2 GiB.
fn index(pack: &Sealed<'_>) -> Vec<u8> {
    const FAR: u32 = 0x8000_0000;
    let mut out = Vec::with_capacity(1100 + pack.entries.len() * 28);
    out.extend_from_slice(b"\xfftOc\0\0\0\x02");
    let mut below = 0u32;
    let mut entries = pack.entries.iter().peekable();
    for first in 0..=u8::MAX {
        while entries.next_if(|entry| entry.oid.as_bytes()[0] == first).is_some() {
            below += 1;
        }
        out.extend_from_slice(&below.to_be_bytes());
    }
    for entry in pack.entries {
        out.extend_from_slice(entry.oid.as_bytes());
    }
    for entry in pack.entries {
        out.extend_from_slice(&entry.crc.to_be_bytes());
    }
    let is_far = |entry: &&Entry| entry.offset >= u64::from(FAR);
    let mut far_ones = 0u32;
    for entry in pack.entries {
        let place = if is_far(&entry) {
            far_ones += 1;
            FAR | (far_ones - 1)
        } else {
            entry.offset as u32
        };
        out.extend_from_slice(&place.to_be_bytes());
    }
    for entry in pack.entries.iter().filter(is_far) {
        out.extend_from_slice(&entry.offset.to_be_bytes());
    }
    out.extend_from_slice(&pack.checksum);
    let checksum = Sha1::digest(&out);
    out.extend_from_slice(&checksum);
    out
}

//! The temporary file of a large pack that is being built.
//!
//! It exists for as long as the pack is built, which may take minutes. A killed process leaves it. Any process that builds the next
//! large pack in the same folder removes it: the files of running processes are locked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;
use sha1::{Digest as _, Sha1};

use super::temporary::{TemporaryFile, WriteError};

/// Bytes of a pack that are kept in memory before they are written to the file.
const THRESHOLD: usize = 8 << 20;
/// Beginning of the names of these files. `git prune` removes files that start with `tmp_`, too.
const PREFIX: &str = "tmp_gitcd_pack_";
/// Length of a pack's header, which ends with the number of objects.
const HEADER_LEN: usize = 12;
const COUNT_LEN: usize = 4;

/// The beginning of a pack, in a file. Without a folder, or while the pack is small, it is empty.
#[derive(Debug, Default)]
pub(super) struct PackSpill {
    folder: Option<PathBuf>,
    file: Option<TemporaryFile>,
    len: u64,
    /// Hash of what was written, with zero as the number of objects.
    hash: Sha1,
    /// Why a write failed.
    failed: Option<WriteError>,
}

impl PackSpill {
    /// Sets the folder of the file: that of the finished pack, since the file is renamed there.
    pub(super) fn set_folder(&mut self, folder: PathBuf) {
        self.folder = Some(folder);
    }

    /// Returns how much of the pack is in the file.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the whole pack is in memory.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Deletes the file.
    pub(super) fn restart(&mut self) {
        (self.file, self.len, self.hash, self.failed) = (None, 0, Sha1::new(), None);
    }

    /// Reports a failed write as soon as it is known. [`Self::restart`] must follow.
    ///
    /// # Errors
    /// [`WriteError`].
    pub(super) fn check(&mut self) -> Result<(), WriteError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Moves the bytes to the file if they are many.
    pub(super) fn spill_if_large(&mut self, bytes: &mut Vec<u8>) {
        if bytes.len() >= THRESHOLD && self.folder.is_some() {
            self.append(bytes);
        }
    }

    /// Moves the bytes to the file. If that fails, the file is deleted at once, so that others have its space.
    pub(super) fn append(&mut self, bytes: &mut Vec<u8>) {
        // After a failure, there is no file any more.
        if (self.is_empty() || self.file.is_some())
            && let Err(error) = self.write(bytes)
        {
            (self.file, self.failed) = (None, Some(error));
        }
        self.len += bytes.len() as u64;
        bytes.clear();
        bytes.shrink_to(THRESHOLD);
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => create(self.folder.as_deref().expect("a pack is moved only if there is a folder for it"))?,
        };
        let written = file.content().write_all(bytes);
        written.map_err(durable::Error::of("write", file.path()))?;
        self.file = Some(file);
        self.hash.update(bytes);
        Ok(())
    }

    /// Completes the file with the number of objects and the checksum, which it returns. [`Self::restart`] must follow.
    ///
    /// The content is read again for that, and compared with what was written: a checksum of anything else would hide damage.
    ///
    /// # Errors
    /// [`WriteError`], also of an earlier write; the file is deleted.
    pub(super) fn seal(&mut self, count: u32) -> Result<(TemporaryFile, [u8; 20]), WriteError> {
        self.check()?;
        let mut file = self.file.take().expect("a pack whose writes did not fail has its file");
        let (written, path) = (std::mem::take(&mut self.hash).finalize(), file.path().to_owned());
        let mut hashes = Hashes::default();
        let mut read = || {
            let content = file.content();
            content.rewind()?;
            content.read_exact(&mut hashes.header)?;
            hashes.begin(count);
            io::copy(content, &mut hashes)
        };
        read().map_err(durable::Error::of("read", &path))?;
        if hashes.len != self.len || hashes.written.finalize() != written {
            let changed = io::Error::new(io::ErrorKind::InvalidData, "it has other content than was written");
            return Err(durable::Error::of("use", &path)(changed).into());
        }
        let checksum: [u8; 20] = hashes.wanted.finalize().into();
        let mut complete = || {
            let content = file.content();
            content.write_all(&checksum)?;
            content.seek(SeekFrom::Start((HEADER_LEN - COUNT_LEN) as u64))?;
            content.write_all(&count.to_be_bytes())
        };
        complete().map_err(durable::Error::of("write", &path))?;
        Ok((file, checksum))
    }
}

/// Hashes of a file: with the number of objects that was written, and with the right one.
#[derive(Default)]
struct Hashes {
    header: [u8; HEADER_LEN],
    written: Sha1,
    wanted: Sha1,
    len: u64,
}

impl Hashes {
    /// Hashes the header.
    fn begin(&mut self, count: u32) {
        self.written.update(self.header);
        self.header[HEADER_LEN - COUNT_LEN..].copy_from_slice(&count.to_be_bytes());
        self.wanted.update(self.header);
        self.len = HEADER_LEN as u64;
    }
}

impl Write for Hashes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.update(bytes);
        self.wanted.update(bytes);
        self.len += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Creates the file, and removes those that killed processes left.
fn create(folder: &Path) -> Result<TemporaryFile, WriteError> {
    durable::make_folder_in(folder.parent().unwrap_or(folder), folder)?;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) {
            remove_unlocked(&entry.path());
        }
    }
    let path = folder.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o444).open(&path);
    let file = file.map_err(durable::Error::of("create", &path))?;
    // On a file system without locks, another process may remove the file. Then this pack fails, and is built again.
    let _locked = file.try_lock();
    Ok(TemporaryFile::of(path, file))
}

/// Removes a file that no process has locked. One that cannot be removed only takes space.
fn remove_unlocked(path: &Path) {
    if File::open(path).is_ok_and(|file| file.try_lock().is_ok()) {
        let _removed = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::pack::{Kind, Writer, id};
    use super::*;

    /// Adds objects of 16 MiB in all, and a delta against the first one.
    fn fill(writer: &mut Writer) {
        let mut state = 1_u64;
        let mut first = None;
        for number in 0..256_u64 {
            let noise = (0..64 << 7).flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
                state.to_be_bytes()
            });
            let content: Vec<u8> = noise.collect();
            let placed = writer.whole(Kind::Blob, id(Kind::Blob, &content), &content);
            first.get_or_insert(placed);
        }
        let (size, same) = (65_536_u32, 65_536_u32);
        // The whole base, copied: `gitformat-pack(5)`, "instruction to copy from base object" of 0x10000 bytes.
        let delta = [&varint(size)[..], &varint(same), &[0x80]].concat();
        writer.delta(id(Kind::Blob, b"not its content"), &delta, first.unwrap()).unwrap();
    }

    fn varint(mut value: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn a_pack_that_moved_to_a_file_is_the_same_as_one_from_memory() {
        let root = tempfile::tempdir().unwrap();
        let (memory, moved) = (root.path().join("memory/pack"), root.path().join("moved/pack"));
        for folder in [&memory, &moved] {
            fs::create_dir_all(folder).unwrap();
        }
        let mut writer = Writer::default();
        fill(&mut writer);
        writer.finish(&memory).unwrap();
        // Twice: nothing of the first one is left in the second.
        writer.spill.set_folder(moved.clone());
        for _ in 0..2 {
            fill(&mut writer);
            assert!(writer.spill.len() >= THRESHOLD as u64);
            writer.finish(&moved).unwrap();
        }
        assert_eq!(names(&memory), names(&moved));
        assert_eq!(names(&memory).len(), 2);
        for name in names(&memory) {
            assert!(fs::read(memory.join(&name)).unwrap() == fs::read(moved.join(&name)).unwrap(), "{name}");
        }
    }

    #[test]
    fn a_pack_whose_file_cannot_be_written_is_an_error_and_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("objects/pack");
        fs::create_dir_all(&folder).unwrap();
        let mut writer = Writer::default();
        writer.spill.set_folder(root.path().join("absent/pack"));
        fill(&mut writer);
        let error = writer.finish(&folder).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
        assert!(names(&folder).is_empty());
        // The next pack is a good one.
        writer.spill.set_folder(folder.clone());
        fill(&mut writer);
        writer.finish(&folder).unwrap();
        assert_eq!(names(&folder).len(), 2);
    }

    #[test]
    fn a_pack_that_is_given_up_leaves_no_file() {
        let root = tempfile::tempdir().unwrap();
        let mut writer = Writer::default();
        writer.spill.set_folder(root.path().join("pack"));
        fill(&mut writer);
        assert_eq!(names(&root.path().join("pack")).len(), 1);
        writer.restart();
        assert!(names(&root.path().join("pack")).is_empty());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_a_living_one_builds_stays() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pack");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(format!("{PREFIX}left")), "a part of a pack").unwrap();
        fs::write(folder.join("tmp_pack_of_git"), "a part of a pack").unwrap();
        let mut writers = [(); 2].map(|()| Writer::default());
        for writer in &mut writers {
            writer.spill.set_folder(folder.clone());
            fill(writer);
        }
        let found = names(&folder);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            !found.contains(&format!("{PREFIX}left")) && found.contains(&"tmp_pack_of_git".to_owned()),
            "{found:?}"
        );
        for mut writer in writers {
            writer.finish(&folder).unwrap();
        }
        // Both wrote the same pack.
        assert_eq!(names(&folder).len(), 3);
    }

    #[test]
    fn content_that_is_not_what_was_written_gets_no_checksum() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pack");
        for damage in [Damage::Byte, Damage::Truncated] {
            let mut writer = Writer::default();
            writer.spill.set_folder(folder.clone());
            fill(&mut writer);
            let path = folder.join(&names(&folder)[0]);
            let mut file = OpenOptions::new().write(true).open(path).unwrap();
            match damage {
                Damage::Byte => {
                    file.seek(SeekFrom::Start(100)).unwrap();
                    file.write_all(b"damage").unwrap();
                }
                Damage::Truncated => file.set_len(1 << 20).unwrap(),
            }
            let error = writer.finish(&folder).unwrap_err();
            let said = std::error::Error::source(&error).unwrap().to_string();
            assert!(said.contains("other content than was written"), "{said}");
            assert!(names(&folder).is_empty());
        }
    }

    enum Damage {
        Byte,
        Truncated,
    }

    #[test]
    fn a_small_pack_that_was_published_and_grows_large_replaces_the_former() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("pack");
        fs::create_dir(&folder).unwrap();
        let mut writer = Writer::default();
        writer.spill.set_folder(folder.clone());
        writer.whole(Kind::Blob, id(Kind::Blob, b"small"), b"small");
        writer.publish(&folder, 512 << 10).unwrap();
        let small = names(&folder);
        fill(&mut writer);
        writer.publish(&folder, 512 << 10).unwrap();
        let large = names(&folder);
        assert_eq!((small.len(), large.len()), (2, 2));
        assert_ne!(small, large);
        assert!(!writer.is_open());
    }
}

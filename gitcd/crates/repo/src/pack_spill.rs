//! The file to which a large pack moves while it is built, so that its size is not limited by memory.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use gitcd_core::durable;
use sha1::{Digest as _, Sha1};

use super::temporary::{Temporary, WriteError, temporary_path};

/// Bytes of a pack that are kept in memory before they move to the file.
const IN_MEMORY: usize = 8 << 20;
/// Position of the number of objects in the header.
const COUNT_AT: u64 = 8;
/// Bytes that are read at once for the checksum.
const AT_ONCE: usize = 256 << 10;

/// The beginning of a pack, in a file. Without a folder, or while the pack is small, it is empty.
#[derive(Debug, Default)]
pub(super) struct Spill {
    folder: Option<PathBuf>,
    file: Option<(File, Temporary)>,
    len: u64,
    /// Why a write failed. It is reported when the pack is completed.
    failed: Option<WriteError>,
}

impl Spill {
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
        (self.file, self.len, self.failed) = (None, 0, None);
    }

    /// Moves the bytes to the file if they are many.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) {
        if bytes.len() >= IN_MEMORY && self.folder.is_some() {
            self.add(bytes);
        }
    }

    /// Moves the bytes to the file. After a failure they are dropped.
    pub(super) fn add(&mut self, bytes: &mut Vec<u8>) {
        if self.failed.is_none() {
            self.failed = self.write(bytes).err();
        }
        self.len += bytes.len() as u64;
        bytes.clear();
        bytes.shrink_to(IN_MEMORY);
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let (file, temporary) = match &mut self.file {
            Some(file) => file,
            none => {
                let folder = self.folder.as_deref().expect("a pack moves only if there is a folder for it");
                durable::make_folder_in(folder.parent().unwrap_or(folder), folder)?;
                let path = temporary_path(folder, "pack");
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create_new(true).mode(0o444).open(&path);
                none.insert((file.map_err(durable::Error::of("create", &path))?, Temporary::of(path)))
            }
        };
        file.write_all(bytes).map_err(durable::Error::of("write", temporary.path()))?;
        Ok(())
    }

    /// Completes the file with the number of objects and the checksum, which it returns.
    ///
    /// # Errors
    /// [`WriteError`], also of an earlier write; the file is deleted.
    pub(super) fn seal(&mut self, count: u32) -> Result<(Temporary, [u8; 20]), WriteError> {
        let file = self.file.take();
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let (mut file, temporary) = file.expect("a file that did not fail is there");
        let sealed = seal(&mut file, count).map_err(durable::Error::of("write", temporary.path()));
        Ok(sealed.map(|checksum| (temporary, checksum))?)
    }
}

fn seal(file: &mut File, count: u32) -> std::io::Result<[u8; 20]> {
    file.seek(SeekFrom::Start(COUNT_AT))?;
    file.write_all(&count.to_be_bytes())?;
    file.rewind()?;
    let (mut hash, mut buffer) = (Sha1::new(), vec![0; AT_ONCE]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    let checksum: [u8; 20] = hash.finalize().into();
    file.write_all(&checksum)?;
    Ok(checksum)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::pack::{Kind, Writer, id};
    use super::*;

    /// Adds objects of 16 MiB in all, the last ones as deltas.
    fn fill(writer: &mut Writer) {
        let mut state = 1_u64;
        let mut placed = None;
        for number in 0..256_u64 {
            let noise = (0..64 << 7).flat_map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number);
                state.to_be_bytes()
            });
            let content: Vec<u8> = noise.collect();
            placed = Some(writer.whole(Kind::Blob, id(Kind::Blob, &content), &content));
        }
        let (size, same) = (65_536_u32, 65_536_u32);
        // The whole base, copied: `gitformat-pack(5)`, "instruction to copy from base object" of 0x10000 bytes.
        let delta = [&varint(size)[..], &varint(same), &[0x80]].concat();
        writer.delta(id(Kind::Blob, b"not its content"), &delta, placed.unwrap()).unwrap();
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
            assert!(writer.spill.len() >= IN_MEMORY as u64);
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
}

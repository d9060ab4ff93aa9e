//! Loose objects, as stock `git` writes them.
//!
//! A crash may leave a truncated file, which libgit2 would inflate without end. So objects that other programs may have written
//! are checked before they are copied.

use std::path::{Path, PathBuf};

use git2::Oid;
use libdeflater::{DecompressionError, Decompressor};

/// The loose objects of a repository.
#[derive(Debug)]
pub(crate) struct Loose {
    objects: PathBuf,
    /// Whether a folder exists for IDs that start with this byte: mostly there is none, and no file needs to be opened.
    folders: [bool; 256],
}

impl Loose {
    /// Reads a repository's object folder as it is now.
    pub(crate) fn of(objects: PathBuf) -> Self {
        let mut folders = [false; 256];
        for entry in std::fs::read_dir(&objects).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let byte = name.to_str().filter(|name| name.len() == 2).and_then(|name| u8::from_str_radix(name, 16).ok());
            if let Some(byte) = byte {
                folders[usize::from(byte)] = true;
            }
        }
        Self { objects, folders }
    }

    /// Returns what is wrong with an object's loose file, if it has one.
    pub(crate) fn problem(&self, oid: Oid) -> Option<String> {
        if self.folders[usize::from(oid.as_bytes()[0])] { problem(&self.objects, oid) } else { None }
    }
}

fn problem(objects: &Path, oid: Oid) -> Option<String> {
    let name = oid.to_string();
    let file = std::fs::read(objects.join(&name[..2]).join(&name[2..])).ok()?;
    if file.is_empty() {
        return Some("its file is empty".to_owned());
    }
    let mut content = vec![0; file.len().saturating_mul(4).max(1 << 10)];
    loop {
        match Decompressor::new().zlib_decompress(&file, &mut content) {
            Ok(_) => return None,
            Err(DecompressionError::InsufficientSpace) => content.resize(content.len().saturating_mul(4), 0),
            Err(DecompressionError::BadData) => return Some("its file is truncated or damaged".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_anywhere_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let repository = git2::Repository::init_bare(folder.path()).unwrap();
        let objects = folder.path().join("objects");
        let large = repository.blob(&vec![b'x'; 100_000]).unwrap();
        assert_eq!(Loose::of(objects.clone()).problem(large), None, "highly compressed content is valid");
        let oid = repository.blob(b"a value").unwrap();
        assert_eq!(Loose::of(objects.clone()).problem(oid), None);
        let name = oid.to_string();
        let path = objects.join(&name[..2]).join(&name[2..]);
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Loose::of(objects.clone()).problem(oid), None, "it may be in a pack");
        for length in 0..file.len() {
            std::fs::write(&path, &file[..length]).unwrap();
            assert!(Loose::of(objects.clone()).problem(oid).is_some(), "{length}");
        }
    }
}

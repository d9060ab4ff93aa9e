//! The committed heads of a branch, and the local file that records the last ones.
//!
//! ```text
//! gitcd pair 1
//! data 1f0c…
//! metadata 77ab…
//! crc32 0badcafe
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::Oid;

use gitcd_core::durable;

/// The committed heads: a data commit and the metadata commit that describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommittedHeads {
    /// The data commit, for users.
    pub data: Oid,
    /// The metadata commit.
    pub metadata: Oid,
}

/// Why the recorded heads could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommittedHeadsError {
    /// The file's content is invalid.
    #[error("{path:?} is damaged; delete it if the branch's two references belong together")]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] durable::Error),
}

impl CommittedHeads {
    /// Returns the recorded heads; `None` if none are recorded.
    pub(super) fn read(path: &Path) -> Result<Option<CommittedHeads>, CommittedHeadsError> {
        match fs::read(path) {
            Ok(text) => match parse(&text) {
                Some(pair) => Ok(Some(pair)),
                None => Err(CommittedHeadsError::Damaged { path: path.into() }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(durable::Error::of("read", path)(error).into()),
        }
    }

    /// Records these heads; after a crash the file holds either the former ones or these.
    pub(super) fn write(self, path: &Path) -> Result<(), CommittedHeadsError> {
        let folder = path.parent().expect("the pair file lies in a branch's state folder");
        durable::make_folder(folder)?;
        Ok(durable::replace(path, format(self).as_bytes())?)
    }
}

fn format(pair: CommittedHeads) -> String {
    let body = format!("gitcd pair 1\ndata {}\nmetadata {}\n", pair.data, pair.metadata);
    format!("{body}crc32 {:08x}\n", crc32fast::hash(body.as_bytes()))
}

fn parse(text: &[u8]) -> Option<CommittedHeads> {
    let text = std::str::from_utf8(text).ok()?;
    let mut lines = text.lines().skip(1);
    let mut id = |name| Oid::from_str(lines.next()?.strip_prefix(name)?).ok();
    let pair = CommittedHeads { data: id("data ")?, metadata: id("metadata ")? };
    // The text must equal what would be written, including the checksum.
    (format(pair) == text).then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_read_back_and_any_changed_byte_is_noticed() {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        let path = folder.path().join("default").join("pair");
        assert!(matches!(CommittedHeads::read(&path), Ok(None)));
        let pair = CommittedHeads {
            data: Oid::from_bytes(&[0x1f; 20]).expect("20 bytes"),
            metadata: Oid::from_bytes(&[0x77; 20]).expect("20 bytes"),
        };
        pair.write(&path).expect("the folder can be written");
        assert_eq!(CommittedHeads::read(&path).expect("it was written a moment ago"), Some(pair));
        let text = fs::read(&path).expect("it was read a moment ago");
        for at in 0..text.len() {
            let mut damaged = text.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("the file can be written");
            assert!(matches!(CommittedHeads::read(&path), Err(CommittedHeadsError::Damaged { .. })), "byte {at}");
        }
    }
}

//! The ID of a fork, in a file of its repository.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gitcd_core::durable;

use crate::boundary::FOLDER;
use crate::own_folder;

/// Number of hexadecimal digits.
const DIGITS: usize = 32;

fn file(git_dir: &Path) -> PathBuf {
    git_dir.join(FOLDER).join("fork-id")
}

/// Returns a new ID.
pub(super) fn new() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// Returns whether this may be an ID, and so the name of a record.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the ID of the repository in a folder; `None` if it has none.
pub(super) fn read(git_dir: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(file(git_dir)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => Ok(Some(text?.trim_end().to_owned()).filter(|text| is_id(text))),
    }
}

/// Sets the ID of the repository in a folder.
pub(super) fn write(git_dir: &Path, id: &str) -> Result<(), durable::Error> {
    own_folder::make(git_dir)?;
    own_folder::replace(git_dir, &file(git_dir), format!("{id}\n").as_bytes())
}

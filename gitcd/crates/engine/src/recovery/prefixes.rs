//! The prefixes that a branch is served with, recorded beside its journal.

use std::fs;
use std::io;
use std::path::Path;

use gitcd_core::durable;
use gitcd_repo::branch::Config;

use super::OpenError;

/// Checks that the prefixes are those the branch was served with: the placement of keys depends on them, and so does what is in
/// Git.
pub(super) fn check(config: &Config, folder: &Path) -> Result<(), OpenError> {
    let path = folder.join("keys");
    let given = config.keys.to_string();
    match fs::read_to_string(&path) {
        Ok(recorded) if recorded == given => Ok(()),
        Ok(recorded) => Err(OpenError::Keys { path, recorded, given }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(durable::Error::of("read", &path)(error).into()),
    }
}

/// Records the prefixes of a branch that is about to be served. Called late: a start that is refused, perhaps because they are
/// wrong, must not record them.
pub(super) fn record(config: &Config, folder: &Path) -> Result<(), OpenError> {
    let path = folder.join("keys");
    if path.exists() {
        return Ok(());
    }
    Ok(durable::replace(&path, config.keys.to_string().as_bytes())?)
}

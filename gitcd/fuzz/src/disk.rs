//! Temporary files of a target.

use std::path::Path;

/// Creates an empty folder, in memory if the system supports it: then an fsync costs nothing.
pub(super) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a temporary folder can be created")
}

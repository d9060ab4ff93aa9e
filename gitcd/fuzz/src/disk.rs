//! Where a target keeps its files.

use std::path::Path;

/// An empty folder, in memory if the system has a place for that: an fsync then costs nothing.
pub(super) fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    folder.expect("a temporary folder can be made")
}

//! Replaces files atomically: a reader sees the old content or the new one, also after a crash.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces `path` atomically; the new file has these permissions from the start. Costs one fsync.
pub(crate) fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    let next = Path::new(&next);
    // A file left by a crash would keep its own, perhaps wider, permissions.
    match std::fs::remove_file(next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(next)?;
    file.write_all(content)?;
    // Without it, a power failure may leave the new name on an empty file.
    file.sync_all()?;
    std::fs::rename(next, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_never_readable_by_others_even_after_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.key");
        std::fs::write(&path, "old").unwrap();
        // A file that a crash may have left, readable by all.
        std::fs::write(dir.path().join("a.key.next"), "half").unwrap();
        replace(&path, b"new", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

//! Disk usage of a data folder, by purpose.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::server::Kind;

/// The size of the files with one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    /// The purpose of the files.
    pub(crate) name: &'static str,
    /// Allocated bytes as counted by `du`, including preallocated blocks.
    pub(crate) bytes: u64,
}

/// Returns the parts of a server's data folder; every file belongs to one.
pub(crate) fn parts(kind: Kind, folder: &Path) -> Result<Vec<Part>> {
    let mut parts: Vec<Part> = kind.disk_parts().iter().map(|&name| Part { name, bytes: 0 }).collect();
    walk(folder, Path::new(""), &mut |path, bytes| {
        let name = kind.disk_part(path);
        if let Some(part) = parts.iter_mut().find(|part| part.name == name) {
            part.bytes += bytes;
        }
    })
    .with_context(|| format!("cannot measure {}", folder.display()))?;
    Ok(parts)
}

/// Sum of all parts.
pub(crate) fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|part| part.bytes).sum()
}

/// Calls `seen` with the path below `root` and the allocated bytes of every file and folder.
fn walk(root: &Path, below: &Path, seen: &mut impl FnMut(&Path, u64)) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        // The server is running: files appear and disappear meanwhile.
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        seen(&path, metadata.blocks() * 512);
        if metadata.is_dir() {
            match walk(root, &path, seen) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_counted_in_exactly_one_part() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["repo.git/objects/pack/a.pack", "repo.git/gitcd/main/journal/1", "repo.git/HEAD"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![1; 10_000]).unwrap();
        }
        let parts = parts(Kind::Gitcd, folder.path()).unwrap();
        for part in &parts {
            assert!(part.bytes >= 10_000, "{part:?}");
        }
        let sum: u64 = parts.iter().map(|part| part.bytes).sum();
        assert_eq!(total(&parts), sum);
    }
}

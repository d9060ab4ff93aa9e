//! Which repositories share objects, along `objects/info/alternates`.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gitcd_core::durable;

use super::ForksError;

/// Whether a folder of objects leads to another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    Yes,
    No,
    /// It may, for this reason.
    Unknown(String),
}

/// Returns the folders that a file `alternates` names.
fn named(objects: &Path) -> io::Result<Vec<PathBuf>> {
    let text = match fs::read(objects.join("info/alternates")) {
        // `gitcd fork --independent` checks whether the objects are complete, or was killed then.
        Err(error) if error.kind() == ErrorKind::NotFound && objects.join("info/alternates.gitcd").exists() => {
            fs::read(objects.join("info/alternates.gitcd"))
        }
        text => text,
    };
    let text = match text {
        // The folder itself must be there, or it is not known what it shares.
        Err(error) if error.kind() == ErrorKind::NotFound => return fs::read_dir(objects).map(|_| Vec::new()),
        text => text?,
    };
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && line[0] != b'#');
    let paths = lines.map(|line| match line[0] {
        b'"' => Err(io::Error::other("a quoted name in objects/info/alternates is not supported")),
        // A relative path is meant from the objects.
        _ => Ok(objects.join(OsStr::from_bytes(line))),
    });
    paths.collect()
}

/// Returns the Git directory of a repository, and those of all repositories whose objects it shares.
pub(super) fn chain(git_dir: &Path) -> Result<Vec<PathBuf>, ForksError> {
    let mut found = vec![git_dir.to_owned()];
    let (mut waiting, mut seen) = (vec![git_dir.join("objects")], Vec::new());
    while let Some(objects) = waiting.pop() {
        let failed = |source| ForksError::File(durable::Error::of("read the alternates of", &objects)(source));
        for named in named(&objects).map_err(failed)? {
            let path = named.canonicalize().map_err(|source| ForksError::Alternates {
                path: objects.join("info/alternates"),
                objects: named.clone(),
                source,
            })?;
            if seen.contains(&path) {
                continue;
            }
            // Objects without a repository around them have no history that could be cut.
            let repository = path.parent().filter(|parent| path.ends_with("objects") && parent.join("HEAD").is_file());
            found.extend(repository.map(Path::to_owned));
            seen.push(path.clone());
            waiting.push(path);
        }
    }
    Ok(found)
}

/// Returns whether a folder of objects leads to another one, which exists.
pub(super) fn shares(objects: &Path, other: &Path) -> Sharing {
    let file = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let wanted = match file(other) {
        Ok(wanted) => wanted,
        Err(error) => return Sharing::Unknown(format!("{}: {error}", other.display())),
    };
    let (mut waiting, mut seen, mut unknown) = (vec![objects.to_owned()], vec![wanted], None);
    while let Some(objects) = waiting.pop() {
        let named = match named(&objects) {
            Ok(named) => named,
            Err(error) => {
                unknown = Some(format!("{}: {error}", objects.display()));
                continue;
            }
        };
        for path in named {
            match file(&path) {
                Ok(found) if found == wanted => return Sharing::Yes,
                Ok(found) if seen.contains(&found) => {}
                Ok(found) => {
                    seen.push(found);
                    waiting.push(path);
                }
                Err(error) => unknown = Some(format!("{}: {error}", path.display())),
            }
        }
    }
    unknown.map_or(Sharing::No, Sharing::Unknown)
}

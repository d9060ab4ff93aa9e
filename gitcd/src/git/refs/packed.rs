//! Reading `packed-refs`, the file of references that have none of their own.
use std::fs;
use std::path::Path;

use git2::Oid;

use super::{RefError, object_id};

/// The object that `name` refers to according to the file.
pub(super) fn find(root: &Path, name: &str) -> Result<Option<Oid>, RefError> {
    scan(root, |id, entry| (entry == name.as_bytes()).then_some(id))
}

/// Some name in the file that has `name` as a folder.
pub(super) fn first_below(root: &Path, name: &str) -> Result<Option<String>, RefError> {
    scan(root, |_, entry| {
        let below = entry.strip_prefix(name.as_bytes())?.starts_with(b"/");
        below.then(|| String::from_utf8_lossy(entry).into_owned())
    })
}

/// The first entry that `want` wants. Git replaces the file as a whole, so one read is consistent.
fn scan<T>(root: &Path, want: impl Fn(Oid, &[u8]) -> Option<T>) -> Result<Option<T>, RefError> {
    let path = root.join("packed-refs");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RefError::Io { path, source }),
    };
    for line in text.split(|&byte| byte == b'\n') {
        // A header, or the object that the tag on the line before points to.
        if matches!(line.first(), None | Some(b'#' | b'^')) {
            continue;
        }
        let entry = line.split_at_checked(40).and_then(|(id, name)| Some((object_id(id)?, name.strip_prefix(b" ")?)));
        let Some((id, name)) = entry else {
            return Err(RefError::Corrupt { path });
        };
        if let Some(wanted) = want(id, name) {
            return Ok(Some(wanted));
        }
    }
    Ok(None)
}

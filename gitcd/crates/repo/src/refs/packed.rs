//! Reads `packed-refs`, the file with all references that have no file of their own.
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::Path;

use git2::Oid;

use super::{RefError, object_id};

/// The name of the file, in the repository's folder.
pub(super) const FILE: &str = "packed-refs";

/// Returns the object that `name` refers to in the file.
pub(super) fn find(root: &Path, name: &str) -> Result<Option<Oid>, RefError> {
    scan(root, |id, entry| (entry == name.as_bytes()).then_some(id))
}

/// Returns a name in the file that has `name` as a folder.
pub(super) fn first_below(root: &Path, name: &str) -> Result<Option<String>, RefError> {
    scan(root, |_, entry| {
        let below = entry.strip_prefix(name.as_bytes())?.starts_with(b"/");
        below.then(|| String::from_utf8_lossy(entry).into_owned())
    })
}

/// Returns all entries.
pub(super) fn all(root: &Path) -> Result<BTreeMap<String, Oid>, RefError> {
    let entries = std::cell::RefCell::new(BTreeMap::new());
    scan(root, |id, name| {
        if let Ok(name) = str::from_utf8(name) {
            entries.borrow_mut().insert(name.to_owned(), id);
        }
        None::<()>
    })?;
    Ok(entries.into_inner())
}

/// Returns whether the file has any of these names.
pub(super) fn has_any(root: &Path, names: &HashSet<&str>) -> Result<bool, RefError> {
    let found = scan(root, |_, entry| str::from_utf8(entry).is_ok_and(|name| names.contains(name)).then_some(()))?;
    Ok(found.is_some())
}

/// Returns the content of the file without these names, and without the lines with their tags' targets.
pub(super) fn without(root: &Path, names: &HashSet<&str>) -> Result<Vec<u8>, RefError> {
    let path = root.join(FILE);
    let text = fs::read(&path).map_err(|source| RefError::Io { path, source })?;
    let mut kept = Vec::with_capacity(text.len());
    let mut is_gone = false;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if !line.starts_with(b"^") {
            let entry = line.get(41..).and_then(|name| str::from_utf8(name.trim_ascii_end()).ok());
            is_gone = !line.starts_with(b"#") && entry.is_some_and(|name| names.contains(name));
        }
        if !is_gone {
            kept.extend_from_slice(line);
        }
    }
    Ok(kept)
}

/// Returns the first result of `want`. Git replaces the file as a whole, so one read is consistent.
fn scan<T>(root: &Path, want: impl Fn(Oid, &[u8]) -> Option<T>) -> Result<Option<T>, RefError> {
    let path = root.join(FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RefError::Io { path, source }),
    };
    for line in text.split(|&byte| byte == b'\n') {
        // A header, or the object that the tag on the previous line points to.
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

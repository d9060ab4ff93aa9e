//! Updates of several references, and deletions.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use git2::Oid;
use gitcd_core::durable;

use super::lock::{Lock, replace_packed};
use super::{After, MAX_SYMBOLIC, RefError, Refs, Stored, packed, parent, valid};

/// A change of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its full name.
    pub name: String,
    /// Its expected current value; `None`: it must not exist.
    pub expected: Option<Oid>,
    /// Its new value; `None`: delete it.
    pub new: Option<Oid>,
}

/// A batch that was rejected.
#[derive(Debug, thiserror::Error)]
#[error("change {at} of the batch")]
pub struct Refused {
    /// The index of the failed change.
    pub at: usize,
    /// Why.
    pub source: RefError,
}

/// A checked and locked change.
struct Held {
    name: String,
    lock: Lock,
    is_deletion: bool,
}

impl Refs {
    /// Makes all changes if all references are as expected, otherwise none.
    ///
    /// All references are locked before the first is changed, so no other program can interfere. Readers may see some changes
    /// before others, and a crash in between may leave only some of them; each change by itself is atomic. When this returns, all
    /// changes survive a power loss. Deletions rewrite `packed-refs` if it has the names.
    ///
    /// # Errors
    /// [`Refused`] with an error as for [`Refs::update`]; nothing was changed, except after [`RefError::Io`].
    pub fn update_all(&self, changes: &[Change]) -> Result<(), Refused> {
        // Lock in a fixed order, so that two batches never deadlock.
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by_key(|at| &changes[*at].name);
        check_creations(changes)?;
        let mut held = Vec::new();
        for at in order {
            let locked = self.hold(&changes[at]).map_err(|source| Refused { at, source })?;
            held.push((at, locked));
        }
        let mut deletions = Vec::new();
        let first = held.first().map_or(0, |(at, _)| *at);
        // Delete from the packed file first: nothing changes while the other file exists.
        let gone: HashSet<_> =
            held.iter().filter(|(_, held)| held.is_deletion).map(|(_, held)| held.name.as_str()).collect();
        if !gone.is_empty() {
            self.delete_packed(&gone).map_err(|source| Refused { at: first, source })?;
        }
        for (at, change) in held {
            if change.is_deletion {
                deletions.push((at, change));
            } else {
                self.publish(&change.name, change.lock, After::PowerLoss).map_err(|source| Refused { at, source })?;
            }
        }
        for (at, change) in deletions {
            self.delete_file(change).map_err(|source| Refused { at, source })?;
        }
        Ok(())
    }

    /// Deletes `name` if it refers to `expected` now. When this returns, the deletion survives a power loss.
    ///
    /// # Errors
    /// As for [`Refs::update`].
    pub fn delete(&self, name: &str, expected: Oid) -> Result<(), RefError> {
        let change = Change { name: name.to_owned(), expected: Some(expected), new: None };
        self.update_all(&[change]).map_err(|refused| refused.source)
    }

    /// Locks a reference and compares its value.
    fn hold(&self, change: &Change) -> Result<Held, RefError> {
        let mut at = valid(&change.name)?.to_owned();
        for _ in 0..=MAX_SYMBOLIC {
            if let Stored::Symbolic(target) = self.stored(&at)? {
                at = target;
                continue;
            }
            if change.new.is_some() && self.stored(&at)? == Stored::Absent {
                self.check_names(&at)?;
            }
            // The lock of a deletion holds the current value, which is never read.
            let content = change.new.or(change.expected).unwrap_or(Oid::ZERO_SHA1);
            let lock = Lock::acquire(self, &at, content)?;
            let found = match self.stored(&at)? {
                Stored::Symbolic(target) => {
                    at = target;
                    continue;
                }
                Stored::Direct(id) => Some(id),
                Stored::Absent => None,
            };
            if found == change.expected {
                return Ok(Held { name: at, lock, is_deletion: change.new.is_none() });
            }
            return Err(RefError::Moved { name: at, expected: change.expected, found });
        }
        Err(RefError::Symbolic { name: change.name.clone() })
    }

    /// Rewrites `packed-refs` without these names, under Git's lock.
    fn delete_packed(&self, names: &HashSet<&str>) -> Result<(), RefError> {
        if !packed::has_any(&self.root, names)? {
            return Ok(());
        }
        let lock = Lock::acquire(self, packed::FILE, Oid::ZERO_SHA1)?;
        let content = packed::without(&self.root, names)?;
        replace_packed(self, &content)?;
        drop(lock);
        Ok(())
    }

    fn delete_file(&self, Held { name, lock, .. }: Held) -> Result<(), RefError> {
        let path = self.file(&name);
        let folder = parent(&path);
        match fs::remove_file(&path) {
            Ok(()) => durable::sync(folder)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(RefError::Io { path, source }),
        }
        drop(lock);
        // Remove folders that became empty, as Git does, but not those that always exist.
        let kept = |folder: &Path| folder.strip_prefix(&self.root).is_ok_and(|below| below.components().count() <= 2);
        for folder in folder.ancestors().take_while(|folder| !kept(folder)) {
            if fs::remove_dir(folder).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Rejects new names of which one would be a folder of the other: each alone would be accepted. Takes linear time.
fn check_creations(changes: &[Change]) -> Result<(), Refused> {
    let is_new = |change: &&Change| change.expected.is_none() && change.new.is_some();
    let names: HashSet<&str> = changes.iter().filter(is_new).map(|change| &*change.name).collect();
    for (at, change) in changes.iter().enumerate().filter(|(_, change)| is_new(change)) {
        let mut above = change.name.match_indices('/').map(|(slash, _)| &change.name[..slash]);
        if let Some(existing) = above.find(|above| names.contains(above)) {
            let source = RefError::Conflict { name: change.name.clone(), existing: existing.to_owned() };
            return Err(Refused { at, source });
        }
    }
    Ok(())
}

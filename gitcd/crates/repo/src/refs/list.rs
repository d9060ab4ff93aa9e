//! Listing of all references, with partial rereads after a change.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use git2::Oid;
use rustix::io::Errno;

use super::{MAX_SYMBOLIC, RefError, Refs, Stored, is_valid, packed};

/// Returns whether an error is one of the process or the system, not of the file: no free file descriptor, no memory.
fn lacks_resources(error: &io::Error) -> bool {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| lacking.contains(&code))
}

/// References as read from the files of a repository.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    files: BTreeMap<String, Stored>,
    packed: BTreeMap<String, Oid>,
}

impl Refs {
    /// Returns all references below `refs/` and their targets, following symbolic ones. Broken references are left out, with a
    /// warning.
    ///
    /// Reads every reference file, and `packed-refs`. A concurrent change of a reference is seen or not, independently of others.
    ///
    /// # Errors
    /// [`RefError::Io`], [`RefError::Corrupt`] for `packed-refs`.
    pub fn list(&self) -> Result<BTreeMap<String, Oid>, RefError> {
        let mut listing = Listing::default();
        listing.read_all(self)?;
        Ok(listing.resolved())
    }
}

impl Listing {
    /// Rereads everything. Files first: `git pack-refs` writes the packed file before it deletes the others.
    pub(crate) fn read_all(&mut self, refs: &Refs) -> Result<(), RefError> {
        self.files.clear();
        self.read_folder(refs, "refs")?;
        self.read_packed(refs)
    }

    /// Rereads `packed-refs`. Doubtful files must be reread before.
    pub(crate) fn read_packed(&mut self, refs: &Refs) -> Result<(), RefError> {
        self.packed = packed::all(&refs.root)?;
        Ok(())
    }

    /// Rereads everything in a folder and below.
    pub(crate) fn read_folder(&mut self, refs: &Refs, folder: &str) -> Result<(), RefError> {
        let prefix = format!("{folder}/");
        self.files.retain(|name, _| !name.starts_with(&prefix));
        self.walk(refs, &refs.file(folder), folder)
    }

    /// Rereads one file, or the folder that replaced it.
    pub(crate) fn read_file(&mut self, refs: &Refs, name: &str) -> Result<(), RefError> {
        let path = refs.file(name);
        if path.is_dir() {
            self.files.remove(name);
            return self.read_folder(refs, name);
        }
        let prefix = format!("{name}/");
        self.files.retain(|other, _| other != name && !other.starts_with(&prefix));
        self.add(refs, name)
    }

    fn walk(&mut self, refs: &Refs, folder: &Path, name: &str) -> Result<(), RefError> {
        let io = |source| RefError::Io { path: folder.to_owned(), source };
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if super::is_no_file(&error) => return Ok(()),
            Err(source) => return Err(io(source)),
        };
        for entry in entries {
            let entry = entry.map_err(io)?;
            let Ok(part) = entry.file_name().into_string() else { continue };
            let name = format!("{name}/{part}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.walk(refs, &entry.path(), &name)?,
                _ => self.add(refs, &name)?,
            }
        }
        Ok(())
    }

    /// Locks and other files have names that no reference can have.
    ///
    /// # Errors
    /// [`RefError::Io`] if this process or the system lacks resources: the reference is not broken, and leaving it out would
    /// report it as deleted.
    fn add(&mut self, refs: &Refs, name: &str) -> Result<(), RefError> {
        if !is_valid(name) {
            return Ok(());
        }
        match refs.stored_in_file(name) {
            Ok(Stored::Absent) => {}
            Ok(stored) => {
                self.files.insert(name.to_owned(), stored);
            }
            Err(RefError::Io { path, source }) if lacks_resources(&source) => {
                return Err(RefError::Io { path, source });
            }
            Err(error) => tracing::warn!(%error, "leaving out a broken reference"),
        }
        Ok(())
    }

    /// Returns whether a symbolic reference leads to `name`.
    pub(crate) fn has_link_to(&self, name: &str) -> bool {
        self.files.values().any(|stored| matches!(stored, Stored::Symbolic(target) if target == name))
    }

    /// Returns the references with their final targets.
    pub(crate) fn resolved(&self) -> BTreeMap<String, Oid> {
        let names = self.packed.keys().chain(self.files.keys());
        names.filter_map(|name| Some((name.clone(), self.resolve(name)?))).collect()
    }

    fn resolve(&self, name: &str) -> Option<Oid> {
        let mut at = name;
        for _ in 0..=MAX_SYMBOLIC {
            match self.files.get(at) {
                Some(Stored::Symbolic(target)) => at = target,
                Some(Stored::Direct(id)) => return Some(*id),
                Some(Stored::Absent) | None => return self.packed.get(at).copied(),
            }
        }
        None
    }
}

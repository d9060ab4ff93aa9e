//! Changes of the boundary. Of several processes, one at a time makes them.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::path::Path;

use git2::Oid;
use gitcd_core::durable;
use rustix::fs::FlockOperation;

use super::record::{self, Cut, Record};
use super::removed;
use super::{Boundary, BoundaryError, FOLDER, OlderCommits, OwnCut, SetError, ShallowState, add_scope, read, set};
use crate::{object, own_folder};

/// Why the boundary was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The present boundary cannot be read.
    #[error(transparent)]
    Read(#[from] BoundaryError),
    /// The record cannot be written.
    #[error(transparent)]
    Write(#[from] durable::Error),
    /// The file `shallow` cannot be replaced.
    #[error(transparent)]
    Set(#[from] SetError),
}

/// The right to change the records and the boundary of a repository.
struct ChangeLock {
    _lock: File,
}

impl ChangeLock {
    /// Waits for other processes, which need it only for a moment.
    fn start(git_dir: &Path) -> Result<Self, durable::Error> {
        record::make_folder(git_dir)?;
        let path = git_dir.join(FOLDER).join("lock");
        let lock = own_folder::lock_file(git_dir, &path)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| durable::Error::of("lock", &path)(error.into()))?;
        Ok(Self { _lock: lock })
    }
}

impl Boundary {
    /// Records a cut before it is made: its description, and the removed commits (`gone`) together with those of earlier cuts. `older`
    /// has the commits before the data commit of the cut, also those that stay. This changes nothing until [`Self::apply`].
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn record(
        &self,
        git_dir: &Path,
        cut: &Cut,
        gone: &BTreeSet<Oid>,
        older: &OlderCommits,
    ) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        let is_older = |oid: &&Oid| older.commits.contains(*oid) && **oid != cut.data;
        let (mut before, mut others) = (Vec::new(), Vec::new());
        let (mut former_boundary, mut scopes) = (BTreeSet::new(), older.scopes.clone());
        if let Some(OwnCut { cut: former, removed, scopes: former_scopes }) = self.own.as_deref() {
            former_scopes.iter().for_each(|scope| add_scope(&mut scopes, scope));
            let (former_older, former_others) = removed.all()?;
            // What is before the former cut is before this one, unless they are of different branches.
            let is_continued = former.data == cut.data || older.commits.contains(&former.data);
            if is_continued {
                before.extend(former_older);
            } else {
                others.extend(former_older);
            }
            others.extend(former_others);
            // Also those that no reference leads to any more.
            former_boundary = former.boundary.difference(&cut.boundary).copied().collect();
        }
        // The boundary itself is not removed as long as it is that, but walks ask which part of it is before the cut.
        let sides = cut.boundary.iter().filter(is_older);
        let (is_before, is_other): (Vec<&Oid>, Vec<&Oid>) =
            gone.iter().chain(&former_boundary).chain(sides).partition(is_older);
        before.extend(is_before.into_iter().map(|oid| object::bytes(*oid)));
        others.extend(is_other.into_iter().map(|oid| object::bytes(*oid)));
        let mut record = Record::of(cut, scopes);
        record.listed = removed::write(git_dir, &record::folder(git_dir).join(&record.removed), (before, others))?;
        Ok(record.write(git_dir)?)
    }

    /// Makes the boundary of a recorded cut that of the repository in this folder, if it still has the boundary `self`.
    ///
    /// # Errors
    /// [`RecordError`]; the boundary is as it was.
    pub fn apply(&self, git_dir: &Path, cut: &Cut) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        Ok(set::set(git_dir, self.seen, &cut.lines())?)
    }

    /// Makes removed commits, which exist again, a part of the boundary: another branch continues from them, so they are needed for
    /// comparisons, without what is before them. Does nothing if the repository has been cut again meanwhile.
    ///
    /// # Errors
    /// [`RecordError`]; the boundary is as it was.
    pub fn restore(git_dir: &Path, commits: &[Oid]) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        let now = Self::read(git_dir)?;
        let Some(mut record) = record::find(git_dir)? else { return Ok(()) };
        let before = record.cut.boundary.len();
        for oid in commits {
            if now.removed(*oid)? {
                record.cut.boundary.insert(*oid);
            }
        }
        if record.cut.boundary.len() == before {
            return Ok(());
        }
        record.write(git_dir)?;
        set::set(git_dir, now.seen, &record.cut.lines())?;
        tidy(git_dir)
    }

    /// Removes the records of boundaries that the repository does not have: of former ones, and of cuts that were interrupted before
    /// they were made.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn tidy(git_dir: &Path) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        tidy(git_dir)
    }

    /// Copies the boundary to another repository that shares the objects of this one, also that of a clone with a limited depth.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn copy(from: &Path, to: &Path) -> Result<(), RecordError> {
        loop {
            let boundary = Self::read(from)?;
            let shallow = read(&from.join("shallow"))?;
            if let Some(OwnCut { cut, removed, scopes }) = boundary.own.as_deref() {
                record::make_folder(to)?;
                let mut record = Record::of(cut, scopes.clone());
                record.listed = removed::write(to, &record::folder(to).join(&record.removed), removed.all()?)?;
                record.write(to)?;
            }
            if let Some(shallow) = shallow {
                own_folder::replace(to, &to.join("shallow"), &shallow)?;
            }
            if !boundary.is_outdated(from) {
                return Ok(());
            }
        }
    }
}

/// Removes all files of records but those of the present boundary. The files of a cut go after its record.
fn tidy(git_dir: &Path) -> Result<(), RecordError> {
    let folder = record::folder(git_dir);
    let is_limited = ShallowState::of(git_dir).0.is_some();
    let stays: HashSet<String> = match record::find(git_dir)? {
        Some(record) => [record.name(), record.removed].into(),
        // Another program moved the boundary: the record lists the removed commits.
        None if is_limited => return Ok(()),
        None => HashSet::new(),
    };
    let mut gone = Vec::new();
    for entry in fs::read_dir(&folder).map_err(durable::Error::of("read", &folder))? {
        let path = entry.map_err(durable::Error::of("read", &folder))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_none_or(|name| !stays.contains(name)) {
            gone.push(path);
        }
    }
    gone.sort_by_key(|path| path.extension().is_some());
    for path in gone {
        fs::remove_file(&path).map_err(durable::Error::of("remove", &path))?;
        durable::sync(&folder)?;
    }
    Ok(())
}

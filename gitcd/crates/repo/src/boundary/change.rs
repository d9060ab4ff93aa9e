//! Changes of the boundary. Of several processes, one at a time makes them.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
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
        for folder in [git_dir.join(FOLDER), record::folder(git_dir)] {
            // Files of another folder would be removed.
            let is_folder = fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
            if !is_folder {
                let error = io::Error::new(io::ErrorKind::NotADirectory, "it must be a folder, and no symbolic link");
                return Err(durable::Error::of("use", &folder)(error));
            }
        }
        let path = git_dir.join(FOLDER).join("lock");
        let lock = own_folder::lock_file(git_dir, &path)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| durable::Error::of("lock", &path)(error.into()))?;
        Ok(Self { _lock: lock })
    }
}

impl Boundary {
    /// Records a cut before it is made: its description, its `boundary`, and the removed commits (`gone`) together with those of earlier
    /// cuts. `older` has the commits before the data commit of the cut, also those that stay. This changes nothing until
    /// [`Self::apply`].
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn record(
        &self,
        git_dir: &Path,
        cut: &Cut,
        boundary: &BTreeSet<Oid>,
        gone: &BTreeSet<Oid>,
        older: &OlderCommits,
    ) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        let is_older = |oid: &&Oid| older.commits.contains(*oid) && **oid != cut.data;
        let (mut cuts, mut parts) = (Vec::new(), Vec::new());
        let (mut before, mut others, mut former_boundary) = (Vec::new(), Vec::new(), BTreeSet::new());
        let mut scopes = older.scopes.clone();
        if let Some(OwnCut { record, removed }) = self.own.as_deref() {
            record.scopes.iter().for_each(|scope| add_scope(&mut scopes, scope));
            let mut former_parts = removed.all()?;
            others.extend(former_parts.pop().unwrap_or_default());
            for (number, (former, part)) in record.cuts.iter().zip(former_parts).enumerate() {
                // What is before a cut of the same branch is before this one. Another one says only where the older commits are.
                let is_continued = former.data == cut.data || older.commits.contains(&former.data);
                let later = record.cuts[number + 1..].iter().chain([cut]);
                let is_named = later.into_iter().any(|later| later.archive == former.archive);
                if !is_continued || !is_named {
                    cuts.push(former.clone());
                    parts.push(if is_continued { Vec::new() } else { part.clone() });
                }
                if is_continued {
                    before.extend(part);
                }
            }
            // Also those that no reference leads to any more.
            former_boundary = record.boundary.difference(boundary).copied().collect();
        }
        // Commits on the boundary are not removed, but walks need to know which of them are ancestors of the cut.
        let sides = boundary.iter().filter(is_older);
        let (is_before, is_other): (Vec<&Oid>, Vec<&Oid>) =
            gone.iter().chain(&former_boundary).chain(sides).partition(is_older);
        before.extend(is_before.into_iter().map(|oid| object::bytes(*oid)));
        others.extend(is_other.into_iter().map(|oid| object::bytes(*oid)));
        cuts.push(cut.clone());
        parts.extend([before, others]);
        let number = record::last_number(git_dir)? + 1;
        let mut record = Record::new(number, cuts, boundary.clone(), scopes);
        record.listed = removed::write(git_dir, &record::folder(git_dir).join(&record.removed), parts)?;
        Ok(record.write(git_dir)?)
    }

    /// Makes a recorded boundary that of the repository in this folder, if it still has the boundary `self`.
    ///
    /// # Errors
    /// [`RecordError`]; the boundary is as it was.
    pub fn apply(&self, git_dir: &Path, boundary: &BTreeSet<Oid>) -> Result<(), RecordError> {
        let _change = ChangeLock::start(git_dir)?;
        Ok(set::set(git_dir, self.seen, &record::lines(boundary))?)
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
        let before = record.boundary.len();
        for oid in commits {
            if now.removed(*oid)? {
                record.boundary.insert(*oid);
            }
        }
        if record.boundary.len() == before {
            return Ok(());
        }
        record.number = record::last_number(git_dir)? + 1;
        record.write(git_dir)?;
        set::set(git_dir, now.seen, &record::lines(&record.boundary))?;
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
            if let Some(OwnCut { record, removed }) = boundary.own.as_deref() {
                record::make_folder(to)?;
                let Record { number, cuts, boundary, scopes, .. } = record.clone();
                let mut record = Record::new(number, cuts, boundary, scopes);
                record.listed = removed::write(to, &record::folder(to).join(&record.removed), removed.all()?)?;
                record.write(to)?;
            }
            let there = to.join("shallow");
            match shallow {
                Some(shallow) => own_folder::replace(to, &there, &shallow)?,
                // Another program made the history whole since the last turn.
                None if there.exists() => fs::remove_file(&there).map_err(durable::Error::of("remove", &there))?,
                None => {}
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
        // The file `shallow` is lost: the record shows what it was.
        None if !record::all(git_dir)?.iter().all(|record| record::is_whole(git_dir, record)) => return Ok(()),
        None => HashSet::new(),
    };
    let mut gone = Vec::new();
    for entry in fs::read_dir(&folder).map_err(durable::Error::of("read", &folder))? {
        let name = entry.map_err(durable::Error::of("read", &folder))?.file_name();
        // Not what another version of gitcd may have there.
        gone.extend(name.to_str().filter(|name| is_own(name) && !stays.contains(*name)).map(|name| folder.join(name)));
    }
    gone.sort_by_key(|path| path.extension().is_some());
    for path in gone {
        fs::remove_file(&path).map_err(durable::Error::of("remove", &path))?;
        durable::sync(&folder)?;
    }
    Ok(())
}

/// Returns whether a file is a record, one with removed commits, or one that was not finished.
fn is_own(name: &str) -> bool {
    let (hash, kind) = name.split_once('.').unwrap_or((name, ""));
    let is_hash = hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash && ["", "removed", "new", "removed.new"].contains(&kind)
}

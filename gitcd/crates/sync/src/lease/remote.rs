//! Access to the remote for the lease: references are read, fetched, and moved by compare-and-swap. Requests to URLs have a
//! timeout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use git2::{Oid, Repository};
use gitcd_repo::branch;
use gitcd_repo::git_dir;
use gitcd_repo::graph::Graph;
use gitcd_repo::refs::{RefError, Refs};

use crate::local::Copier;
use crate::program::LIMIT;
use crate::reach::Reach;
use crate::remote::{Link, Location, Push, Remote, RemoteError};
use crate::status::Condition;

/// A reference, its new value, and its expected value.
pub(super) type Update = (String, Oid, Option<Oid>);

/// The remote of a branch, for the lease. Calls block.
#[derive(Clone, Debug)]
pub(super) struct LeaseRemote {
    pub(super) remote: Remote,
    pub(super) config: branch::Config,
    pub(super) link: Link,
}

/// Timeout of exchanges that may transfer many objects.
pub(super) const LONG: Duration = LIMIT;

impl LeaseRemote {
    fn failed(&self, condition: Condition, problem: &dyn std::fmt::Display) -> RemoteError {
        RemoteError { remote: self.remote.name.clone(), condition, problem: problem.to_string() }
    }

    fn reach<'r>(&'r self, here: &'r Path, url: &'r str, limit: Duration) -> Reach<'r> {
        Reach { limit, ..self.remote.reach(here, &self.link, url) }
    }

    pub(super) fn git_dir(&self) -> PathBuf {
        git_dir(&self.config.repository)
    }

    pub(super) fn here(&self) -> Result<Repository, RemoteError> {
        Repository::open(self.git_dir()).map_err(|error| self.failed(Condition::Failed, &error.message()))
    }

    /// Reads a reference of the local repository.
    pub(super) fn own(&self, name: &str) -> Result<Option<Oid>, RemoteError> {
        let refs = Refs::open(&self.git_dir()).and_then(|refs| refs.read(name));
        refs.map_err(|error| self.failed(Condition::Failed, &error))
    }

    /// Returns whether `ancestor` is in the history of `commit`; both must be in the local repository.
    pub(super) fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, RemoteError> {
        let found = Graph::default().is_ancestor(&self.here()?, ancestor, commit);
        found.map_err(|error| self.failed(Condition::Damaged, &error))
    }

    fn refs(&self, folder: &Path) -> Result<Refs, RemoteError> {
        Refs::open(folder).map_err(|error| {
            let condition = match error {
                RefError::Open { .. } => Condition::Unreachable,
                _ => Condition::Damaged,
            };
            self.failed(condition, &gitcd_core::error::chain(&error))
        })
    }

    /// Returns the remote's values of these references.
    pub(super) fn find<const N: usize>(
        &self,
        names: [&str; N],
        limit: Duration,
    ) -> Result<[Option<Oid>; N], RemoteError> {
        let mut found = [None; N];
        match self.remote.location(&self.config.repository)? {
            Location::Folder(folder) => {
                let refs = self.refs(&folder)?;
                for (name, found) in names.iter().zip(&mut found) {
                    *found = refs.read(name).map_err(|error| self.failed(Condition::Damaged, &error))?;
                }
            }
            Location::Url(url) => {
                let here = self.git_dir();
                found = self
                    .reach(&here, &url, limit)
                    .find(names)
                    .map_err(|failed| self.failed(failed.condition, &failed.said))?;
            }
        }
        Ok(found)
    }

    /// Returns the remote's references whose names start with `start`.
    pub(super) fn beginning_with(&self, start: &str) -> Result<Vec<(String, Oid)>, RemoteError> {
        let mut all: Vec<(String, Oid)> = match self.remote.location(&self.config.repository)? {
            Location::Folder(folder) => {
                let all = self.refs(&folder)?.list();
                all.map_err(|error| self.failed(Condition::Damaged, &error))?.into_iter().collect()
            }
            Location::Url(url) => {
                let here = self.git_dir();
                let all = self.reach(&here, &url, LONG).references(&[start]);
                all.map_err(|failed| self.failed(failed.condition, &failed.said))?
            }
        };
        all.retain(|(name, _)| name.starts_with(start));
        Ok(all)
    }

    /// Fetches the commits that are missing here, and moves the tracking references ([`Remote::tracking`]) to them.
    pub(super) fn bring(&self, wanted: &[(&str, Option<Oid>)]) -> Result<(), RemoteError> {
        let wanted: Vec<(&str, Oid)> = wanted.iter().filter_map(|(name, oid)| Some((*name, (*oid)?))).collect();
        let here = self.here()?;
        let missing: Vec<_> = wanted.iter().filter(|(_, oid)| here.find_commit(*oid).is_err()).copied().collect();
        if !missing.is_empty() {
            match self.remote.location(&self.config.repository)? {
                Location::Folder(folder) => {
                    let there = Repository::open(&folder)
                        .map_err(|error| self.failed(Condition::Unreachable, &error.message()))?;
                    let oids: Vec<Oid> = missing.iter().map(|(_, oid)| *oid).collect();
                    Copier::default()
                        .copy(&there, &here, &oids)
                        .map_err(|error| self.failed(Condition::Damaged, &gitcd_core::error::chain(&error)))?;
                }
                Location::Url(url) => {
                    let one = |(name, oid): &(&str, Oid)| ((*name).to_owned(), *oid, self.remote.tracking(name));
                    let missing: Vec<_> = missing.iter().map(one).collect();
                    let own: Vec<Oid> = self.own(&self.config.data_reference)?.into_iter().collect();
                    let here = self.git_dir();
                    self.reach(&here, &url, LONG)
                        .fetch(&missing, &own, &mut Copier::default())
                        .map_err(|failed| self.failed(failed.condition, &failed.said))?;
                }
            }
        }
        let refs = self.refs(&self.git_dir())?;
        for (name, oid) in wanted {
            // The reference may have moved between listing and fetch: the caller lists again.
            if self.here()?.find_commit(oid).is_err() {
                return Err(self.failed(Condition::Raced, &format!("{name} has just moved on the remote")));
            }
            self.follow(&refs, name, oid)?;
        }
        Ok(())
    }

    fn follow(&self, refs: &Refs, name: &str, oid: Oid) -> Result<(), RemoteError> {
        refs.note(&self.remote.tracking(name), oid).map_err(|error| self.failed(Condition::Failed, &error))
    }

    /// Protects a commit that is about to be pushed from garbage collection in the local repository.
    pub(super) fn keep(&self, name: &str, oid: Oid) -> Result<(), RemoteError> {
        self.follow(&self.refs(&self.git_dir())?, name, oid)
    }

    /// Moves references on the remote if they have their expected values.
    pub(super) fn push(&self, updates: Vec<Update>, limit: Duration) -> Result<(), RemoteError> {
        match self.remote.location(&self.config.repository)? {
            Location::Folder(_) => {
                self.remote.push(&self.config, &Link::default(), &Push { updates, there: Vec::new() }).map(drop)
            }
            Location::Url(url) => {
                let here = self.git_dir();
                let pushed = self.reach(&here, &url, limit).push(&updates, &[]);
                pushed.map(drop).map_err(|failed| self.failed(failed.condition, &failed.said))
            }
        }
    }
}

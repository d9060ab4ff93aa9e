//! Access to the remote for the lease: references are read, fetched, and moved by compare-and-swap. Requests to URLs have a
//! timeout.

use std::path::PathBuf;
use std::time::Duration;

use git2::{Oid, Repository};
use gitcd_repo::branch;
use gitcd_repo::git_dir;
use gitcd_repo::graph::Graph;
use gitcd_repo::refs::Refs;

use crate::remote::{Link, Push, Remote, RemoteError};
use crate::status::Condition;
use crate::transport::{self, Discovery, FetchRequest, Local, Objects, Transport, TransportError, Wanted};
pub(super) use crate::wire::{LIMIT, Update};

/// The remote of a branch, for the lease. Calls block.
#[derive(Clone, Debug)]
pub(super) struct LeaseRemote {
    pub(super) remote: Remote,
    pub(super) config: branch::Config,
    pub(super) link: Link,
}

impl LeaseRemote {
    pub(super) fn failed(&self, condition: Condition, problem: &dyn std::fmt::Display) -> RemoteError {
        RemoteError::new(&self.remote.name, condition, problem.to_string())
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

    /// Runs an exchange with the remote.
    fn exchange<T>(
        &self,
        limit: Duration,
        exchange: impl FnOnce(&dyn Transport) -> Result<T, TransportError>,
    ) -> Result<T, RemoteError> {
        let (git_dir, location) = (self.git_dir(), self.remote.location(&self.config.repository)?);
        let link = self.link.with_new_packs();
        let transport = transport::choose(Local { limit, ..self.remote.local(&git_dir, &link) }, &location);
        exchange(&*transport)
            .map_err(|failed| RemoteError { cause: failed.cause, ..self.failed(failed.condition, &failed.said) })
    }

    /// Returns the remote's values of these references.
    pub(super) fn find<const N: usize>(
        &self,
        names: [&str; N],
        limit: Duration,
    ) -> Result<[Option<Oid>; N], RemoteError> {
        let all = self.exchange(limit, |transport| transport.discover(Discovery::Names(&names)))?;
        Ok(names.map(|name| all.iter().find(|(found, _)| found == name).map(|(_, oid)| *oid)))
    }

    /// Returns the remote's references whose names start with `start`.
    pub(super) fn beginning_with(&self, start: &str) -> Result<Vec<(String, Oid)>, RemoteError> {
        let mut all = self.exchange(LIMIT, |transport| transport.discover(Discovery::Prefix(start)))?;
        all.retain(|(name, _)| name.starts_with(start));
        Ok(all)
    }

    /// Fetches the commits that are missing here, and moves the tracking references ([`Remote::tracking`]) to them.
    pub(super) fn bring(&self, wanted: &[(&str, Option<Oid>)]) -> Result<(), RemoteError> {
        let wanted: Vec<(&str, Oid)> = wanted.iter().filter_map(|(name, oid)| Some((*name, (*oid)?))).collect();
        let (here, refs) = (self.here()?, self.refs()?);
        let is_known = |(name, oid): &(&str, Oid)| {
            matches!(refs.read(&self.remote.tracking(name)), Ok(Some(known)) if known == *oid)
                && here.find_commit(*oid).is_ok()
        };
        if wanted.iter().all(is_known) {
            return Ok(());
        }
        // Until the references lead to them.
        let _in_use = self.remote.to_receive(here.commondir())?;
        let missing: Vec<_> = wanted.iter().filter(|(_, oid)| here.find_commit(*oid).is_err()).copied().collect();
        if !missing.is_empty() {
            let one = |(name, oid): &(&str, Oid)| Wanted {
                name: (*name).to_owned(),
                oid: *oid,
                tracking: self.remote.tracking(name),
            };
            let missing: Vec<_> = missing.iter().map(one).collect();
            let own: Vec<Oid> = self.own(&self.config.data_reference)?.into_iter().collect();
            let request = FetchRequest { wanted: &missing, own: &own, objects: Objects::Missing };
            self.exchange(LIMIT, |transport| transport.fetch(&request))?;
        }
        for (name, oid) in wanted {
            // The reference may have moved between listing and fetch: the caller lists again.
            if self.here()?.find_commit(oid).is_err() {
                return Err(self.failed(Condition::Raced, &format!("{name} has just moved on the remote")));
            }
            self.follow(&refs, name, oid)?;
        }
        Ok(())
    }

    fn refs(&self) -> Result<Refs, RemoteError> {
        Refs::open(&self.git_dir()).map_err(|error| self.failed(Condition::Failed, &gitcd_core::error::chain(&error)))
    }

    fn follow(&self, refs: &Refs, name: &str, oid: Oid) -> Result<(), RemoteError> {
        refs.note(&self.remote.tracking(name), oid).map_err(|error| self.failed(Condition::Failed, &error))
    }

    /// Protects a commit that is about to be pushed from garbage collection in the local repository.
    pub(super) fn keep(&self, name: &str, oid: Oid) -> Result<(), RemoteError> {
        self.follow(&self.refs()?, name, oid)
    }

    /// Moves references on the remote if they have their expected values.
    pub(super) fn push(&self, updates: Vec<Update>, limit: Duration) -> Result<(), RemoteError> {
        let push = Push { updates, there: Vec::new() };
        self.exchange(limit, |transport| transport.push(&push)).map(drop)
    }
}

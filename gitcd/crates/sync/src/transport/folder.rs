//! Remotes in folders on this machine: objects are copied from repository to repository.

use std::path::Path;

use git2::{Oid, Repository};
use gitcd_repo::alternates::ObjectsInUse;
use gitcd_repo::object;
use gitcd_repo::refs::{RefError, Refs};

use super::{Discovery, FetchRequest, Local, Objects, Push, Transport, TransportError, Wanted, track};
use crate::status::Condition;

/// The transport to a repository in a folder.
pub(super) struct FolderTransport<'r> {
    pub(super) local: Local<'r>,
    pub(super) folder: &'r Path,
}

impl FolderTransport<'_> {
    fn repository(&self) -> Result<Repository, TransportError> {
        Repository::open(self.folder).map_err(|error| self.cannot_open(&error))
    }

    fn refs(&self) -> Result<Refs, TransportError> {
        Refs::open(self.folder).map_err(|error| match error {
            RefError::Open { source, .. } => self.cannot_open(&source),
            error => TransportError::new(Condition::Damaged, error),
        })
    }

    fn cannot_open(&self, error: &git2::Error) -> TransportError {
        let said = format!("{} cannot be opened: {}", self.folder.display(), error.message());
        TransportError::new(Condition::Unreachable, said)
    }

    fn here(&self) -> Result<Repository, TransportError> {
        Repository::open(self.local.git_dir).map_err(|error| TransportError::here(error.message()))
    }

    /// Returns the commit of a reference, which may be an annotated tag unless it is a branch or a reference of gitcd.
    fn commit(&self, name: &str, found: Oid) -> Oid {
        if name.starts_with("refs/heads/") || name.starts_with("refs/gitcd/") {
            // Opening the repository would cost more than everything else in a fetch without news.
            return found;
        }
        let peeled = || {
            let repository = Repository::open(self.folder).ok()?;
            let odb = repository.odb().ok()?;
            Some(object::peeled(&odb, found))
        };
        peeled().unwrap_or(found)
    }
}

impl Transport for FolderTransport<'_> {
    fn discover(&self, wanted: Discovery<'_>) -> Result<Vec<(String, Oid)>, TransportError> {
        let (refs, damaged) = (self.refs()?, |error: RefError| TransportError::new(Condition::Damaged, error));
        let mut found = Vec::new();
        match wanted {
            Discovery::Names(names) => {
                for name in names {
                    found.extend(refs.read(name).map_err(damaged)?.map(|oid| ((*name).to_owned(), oid)));
                }
            }
            Discovery::Prefix(prefix) => {
                found.extend(refs.list().map_err(damaged)?.into_iter().filter(|(name, _)| name.starts_with(prefix)));
            }
        }
        found.iter_mut().for_each(|(name, oid)| *oid = self.commit(name, *oid));
        Ok(found)
    }

    fn fetch(&self, request: &FetchRequest<'_>) -> Result<u64, TransportError> {
        let (from, to) = (self.repository()?, self.here()?);
        let wanted: Vec<Oid> = request.wanted.iter().map(|Wanted { oid, .. }| *oid).collect();
        let _running = self.local.link.progress.begin();
        let mut packs = self.local.link.fetching.lock();
        if request.objects == Objects::All {
            let copied = packs.copy_again(&from, &to, &wanted, request.own);
            return copied.map_err(|error| TransportError::received(&error));
        }
        let bytes = packs.copy(&from, &to, &wanted).map_err(|error| TransportError::received(&error))?;
        track(self.local.git_dir, request.wanted)?;
        Ok(bytes)
    }

    fn push(&self, push: &Push) -> Result<u64, TransportError> {
        let (there, refs, here) = (self.repository()?, self.refs()?, self.here()?);
        // What is copied may continue from commits that no reference leads to.
        let in_use = ObjectsInUse::to_receive(there.commondir());
        let _in_use = in_use.map_err(|error| TransportError::new(Condition::Failed, error))?;
        let wanted: Vec<Oid> = push.updates.iter().map(|(_, new, _)| *new).collect();
        let tips: Vec<Oid> =
            push.updates.iter().filter_map(|(.., old)| *old).chain(push.there.iter().copied()).collect();
        let copied = self.local.link.pushing.lock().push(&here, &there, &wanted, &tips);
        let bytes = copied.map_err(|error| TransportError::here(gitcd_core::error::chain(&error)))?;
        for (reference, new, expected) in &push.updates {
            if *expected == Some(*new) {
                continue;
            }
            refs.update(reference, *new, *expected).map_err(|error| {
                let condition = match error {
                    RefError::Moved { .. } | RefError::Locked { .. } => Condition::Raced,
                    _ => Condition::Failed,
                };
                TransportError::new(condition, error)
            })?;
        }
        Ok(bytes)
    }
}

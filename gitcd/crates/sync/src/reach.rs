//! Access to repositories with a URL: over HTTP by this process, everything else by the `git` program.

use std::path::Path;
use std::time::Duration;

use git2::{Oid, Repository};
use gitcd_repo::refs::Refs;
use gitcd_repo::transfer::{self, Bounds, TransferError};
use tokio::runtime::Handle;

use super::credentials::Credentials;
use super::hints;
use super::local::Copier;
use super::program::{self, Failed};
use super::smart::{self, Exchange, Service, Session, Update};
use super::status::Condition;

/// Limits of a push from memory; larger ones are left to the `git` program.
const LARGEST: Bounds = Bounds { commits: 10_000, bytes: 32 << 20 };

/// Access from a local repository to one with a URL. Calls block; make them only where blocking is allowed.
pub(super) struct Reach<'r> {
    /// The local Git directory.
    pub(super) here: &'r Path,
    pub(super) url: &'r str,
    pub(super) credentials: &'r Credentials,
    pub(super) session: &'r Session,
    pub(super) limit: Duration,
}

/// A reference to fetch: its name on the remote, its value there, and its tracking reference.
pub(super) type Wanted = (String, Oid, String);

impl Reach<'_> {
    /// Returns the remote's references whose names start with one of these.
    pub(super) fn references(&self, beginnings: &[&str]) -> Result<Vec<(String, Oid)>, Failed> {
        self.list(beginnings).map_err(|failed| self.advised(failed))
    }

    fn list(&self, beginnings: &[&str]) -> Result<Vec<(String, Oid)>, Failed> {
        let found = self.exchange(Service::Fetch, async |exchange| exchange.references(beginnings).await)?;
        found.map_or_else(
            || {
                let patterns: Vec<_> = beginnings.iter().map(|beginning| format!("{beginning}*")).collect();
                let patterns: Vec<_> = patterns.iter().map(String::as_str).collect();
                program::named(self.here, self.url, self.credentials, &patterns, self.limit)
            },
            Ok,
        )
    }

    /// Returns the remote's values of these references.
    pub(super) fn find<const N: usize>(&self, names: [&str; N]) -> Result<[Option<Oid>; N], Failed> {
        let all = self.references(&names)?;
        Ok(names.map(|name| all.iter().find(|(found, _)| found == name).map(|(_, oid)| *oid)))
    }

    /// Fetches references and moves their tracking references; returns the bytes received. `own`: commits of ours that the
    /// remote may have.
    pub(super) fn fetch(&self, wanted: &[Wanted], own: &[Oid], copier: &mut Copier) -> Result<u64, Failed> {
        let here = Repository::open(self.here).map_err(|error| failed(&error.message()))?;
        let odb = here.odb().map_err(|error| failed(&error.message()))?;
        let refs = Refs::open(self.here).map_err(|error| failed(&error))?;
        let mut oids: Vec<Oid> = wanted.iter().map(|(_, oid, _)| *oid).filter(|oid| !odb.exists(*oid)).collect();
        oids.sort_unstable();
        oids.dedup();
        let mut bytes = 0;
        if !oids.is_empty() {
            let mut seen = Vec::new();
            for (_, _, follower) in wanted {
                seen.extend(refs.read(follower).map_err(|error| failed(&error))?);
            }
            let have = smart::have(&here, &odb, &seen, own);
            let received = self.exchange(Service::Fetch, async |exchange| exchange.fetch(&here, &oids, &have).await)?;
            let Some(incoming) = received.flatten() else {
                let pairs: Vec<_> = wanted.iter().map(|(name, _, follower)| (name.clone(), follower.clone())).collect();
                return program::fetch(self.here, self.url, self.credentials, &pairs).map(|()| 0);
            };
            let both = incoming.with(self.here).map_err(|error| failed(&error.message()))?;
            // Copied into a pack that grows from fetch to fetch, and only if no object is missing.
            copier.copy(&both, &here, &oids).map_err(|error| taken(&error))?;
            bytes = incoming.bytes;
        }
        for (_, oid, follower) in wanted {
            refs.note(follower, *oid).map_err(|error| failed(&error))?;
        }
        Ok(bytes)
    }

    /// Fetches all objects that these commits need, even if some exist here: only commits in the history of `whole` count as
    /// complete.
    pub(super) fn fetch_again(
        &self,
        wanted: &[(String, Oid)],
        whole: &[Oid],
        copier: &mut Copier,
    ) -> Result<u64, Failed> {
        let here = Repository::open(self.here).map_err(|error| failed(&error.message()))?;
        let odb = here.odb().map_err(|error| failed(&error.message()))?;
        let oids: Vec<Oid> = wanted.iter().map(|(_, oid)| *oid).collect();
        let have = smart::have(&here, &odb, &[], whole);
        let received = self.exchange(Service::Fetch, async |exchange| exchange.fetch(&here, &oids, &have).await)?;
        let Some(incoming) = received.flatten() else {
            let names: Vec<&str> = wanted.iter().map(|(name, _)| name.as_str()).collect();
            return program::fetch_again(self.here, self.url, self.credentials, &names).map(|()| 0);
        };
        let both = incoming.with(self.here).map_err(|error| failed(&error.message()))?;
        copier.copy_again(&both, &here, &oids, whole).map_err(|error| taken(&error))?;
        Ok(incoming.bytes)
    }

    /// Pushes references that must have their expected values; returns the bytes sent. `there`: commits that the remote has.
    pub(super) fn push(&self, updates: &[Update], there: &[Oid]) -> Result<u64, Failed> {
        self.send(updates, there).map_err(|failed| self.advised(failed))
    }

    fn send(&self, updates: &[Update], there: &[Oid]) -> Result<u64, Failed> {
        let updates: Vec<Update> = updates.iter().filter(|(_, new, old)| *old != Some(*new)).cloned().collect();
        if updates.is_empty() {
            return Ok(0);
        }
        let pushed = self.exchange(Service::Push, async |exchange| {
            let wanted: Vec<Oid> = updates.iter().map(|(_, new, _)| *new).collect();
            let there: Vec<Oid> = updates.iter().filter_map(|(.., old)| *old).chain(there.iter().copied()).collect();
            let here = Repository::open(self.here).map_err(|error| failed(&error.message()))?;
            match transfer::thin(&here, &wanted, &there, Vec::new(), LARGEST).map_err(|error| failed(&error))? {
                Some(pack) => exchange.push(&updates, pack).await.map(Some),
                // Too large for memory: the program streams its pack.
                None => Ok(None),
            }
        })?;
        pushed.flatten().map_or_else(
            || program::push_within(self.limit, self.here, self.url, self.credentials, &updates).map(|()| 0),
            Ok,
        )
    }

    /// Adds a hint to an error. Every exchange starts with a list or a push, so these are the calls that are denied.
    fn advised(&self, failed: Failed) -> Failed {
        hints::add(failed, self.here, self.url, self.credentials)
    }

    /// Runs an exchange over HTTP; `None` if the remote is left to the program.
    fn exchange<T>(
        &self,
        service: Service,
        speak: impl AsyncFnOnce(&Exchange<'_>) -> Result<T, Failed>,
    ) -> Result<Option<T>, Failed> {
        Handle::current().block_on(async {
            let spoken = async {
                match self.session.begin(self.here, self.url, self.credentials, service).await? {
                    Some(exchange) => speak(&exchange).await.map(Some),
                    None => Ok(None),
                }
            };
            let late = |_| {
                // The connection may be dead.
                self.session.forget(service);
                let said = format!("timed out after {:?}", self.limit);
                Err(Failed { condition: Condition::Unreachable, said })
            };
            tokio::time::timeout(self.limit, spoken).await.unwrap_or_else(late)
        })
    }
}

fn failed(said: &dyn std::fmt::Display) -> Failed {
    Failed { condition: Condition::Failed, said: said.to_string() }
}

fn taken(error: &TransferError) -> Failed {
    let said = gitcd_core::error::chain(error);
    let condition = match error {
        TransferError::Read { .. } | TransferError::TooLarge => Condition::Damaged,
        TransferError::Write(_) if said.contains("space") => Condition::NoSpace,
        _ => Condition::Failed,
    };
    Failed { condition, said }
}

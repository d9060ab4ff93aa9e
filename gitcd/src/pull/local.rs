//! Objects from one repository of this machine to another.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use git2::{Odb, OdbLookupFlags, Oid, Repository};

use crate::git::graph::Graph;
use crate::git::transfer::{self, TransferError};

/// What one repository gets from another, again and again.
#[derive(Debug, Default)]
pub(super) struct Copier {
    pack: transfer::Pack,
    /// Where the pack goes.
    to: PathBuf,
}

impl Copier {
    /// Copies what `wanted` needs and `to` does not have yet; returns the bytes written.
    ///
    /// A commit that is there has everything that it needs: packs become visible whole.
    ///
    /// # Errors
    /// [`TransferError`], with nothing new visible in `to`.
    pub(super) fn copy(&mut self, from: &Repository, to: &Repository, wanted: &[Oid]) -> Result<u64, TransferError> {
        if self.to != to.commondir() {
            self.pack.restart();
            to.commondir().clone_into(&mut self.to);
        }
        self.add(from, to, wanted).inspect_err(|_| self.pack.restart())
    }

    fn add(&mut self, from: &Repository, to: &Repository, wanted: &[Oid]) -> Result<u64, TransferError> {
        let to_odb = odb(to)?;
        let _stale = to_odb.refresh();
        let mut graph = Graph::default();
        let (mut queue, mut seen, mut commits) = (VecDeque::new(), HashSet::new(), Vec::new());
        queue.extend(wanted.iter().copied());
        while let Some(oid) = queue.pop_front() {
            // What has just been looked for need not be looked for again: that would read the folder of packs for each commit.
            if !seen.insert(oid) || to_odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
                continue;
            }
            let commit =
                graph.commit(from, oid).map_err(|error| TransferError::Read { oid, said: error.to_string() })?;
            queue.extend(commit.parents.iter().copied());
            commits.push((oid, commit));
        }
        if commits.is_empty() {
            return Ok(0);
        }
        // Parents first, so that what has changed is made from what it was.
        commits.reverse();
        let from_odb = odb(from)?;
        for (oid, commit) in &commits {
            let before: Vec<Oid> =
                commit.parents.iter().filter_map(|parent| Some(graph.commit(from, *parent).ok()?.tree)).collect();
            self.pack.tree(&from_odb, &to_odb, &before, commit.tree)?;
            self.pack.commit(&from_odb, *oid)?;
        }
        self.pack.publish(to)
    }
}

fn odb(repository: &Repository) -> Result<Odb<'_>, TransferError> {
    let failed = |error: git2::Error| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() };
    repository.odb().map_err(failed)
}

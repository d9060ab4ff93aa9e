//! Objects from one repository of this machine to another.

use std::collections::{HashMap, HashSet, VecDeque};

use git2::{OdbLookupFlags, Oid, Repository};

use crate::git::graph::Graph;
use crate::git::transfer::{self, TransferError};

/// Copies what `wanted` needs and `to` does not have yet; returns the bytes written.
///
/// A commit that is there has everything that it needs: packs become visible whole.
///
/// # Errors
/// [`TransferError`], with nothing visible in `to`.
pub(super) fn copy(from: &Repository, to: &Repository, wanted: &[Oid]) -> Result<u64, TransferError> {
    let to_odb =
        to.odb().map_err(|error| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() })?;
    let _stale = to_odb.refresh();
    let mut graph = Graph::default();
    let (mut queue, mut seen, mut commits) = (VecDeque::new(), HashSet::new(), Vec::new());
    queue.extend(wanted.iter().copied());
    while let Some(oid) = queue.pop_front() {
        // What has just been looked for need not be looked for again: that would read the folder of packs for each commit.
        if !seen.insert(oid) || to_odb.exists_ext(oid, OdbLookupFlags::NO_REFRESH) {
            continue;
        }
        let commit = graph.commit(from, oid).map_err(|error| TransferError::Read { oid, said: error.to_string() })?;
        queue.extend(commit.parents.iter().copied());
        commits.push((oid, commit));
    }
    if commits.is_empty() {
        return Ok(0);
    }
    // Parents first, so that what has changed is made from what it was.
    commits.reverse();
    let odb =
        from.odb().map_err(|error| TransferError::Read { oid: Oid::ZERO_SHA1, said: error.message().to_owned() })?;
    let mut pack = transfer::Pack::default();
    let mut trees: HashMap<Oid, Oid> = HashMap::new();
    for (oid, commit) in &commits {
        trees.insert(*oid, commit.tree);
        let mut before = None;
        if let Some(parent) = commit.parents.first() {
            before = match trees.get(parent) {
                Some(tree) => Some(*tree),
                None => graph.commit(from, *parent).ok().map(|parent| parent.tree),
            };
        }
        pack.tree(&odb, &to_odb, before, commit.tree)?;
        pack.commit(&odb, *oid)?;
    }
    pack.finish(to)
}

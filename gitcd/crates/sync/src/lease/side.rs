//! Side branches: acknowledged writes of a former writer that were not pushed when another server took over.
//!
//! The name is the name of the branch, `-side-`, and the first digits of the commit's id. The lease holder merges the side
//! branches that it finds on the remote, which stay there until an operator deletes them. A branch with such a name that was
//! created or continued by hand has another commit, and is ignored.

use std::time::Duration;

use git2::Oid;
use gitcd_core::error::chain;
use tokio::sync::watch;

use super::remote::{LIMIT, LeaseRemote};
use crate::external;
use crate::git_worker::blocking;
use crate::merger::{DryRun, MergeOptions, MergeOutcome, Merger};
use crate::remote::RemoteError;
use crate::status::Statuses;

const MARK: &str = "-side-";
const DIGITS: usize = 12;

/// Returns whether a reference has the name of a side branch, whatever its branch.
pub fn is_side_branch(name: &str) -> bool {
    let digits = name.rsplit_once(MARK).map_or("", |(_, digits)| digits);
    digits.len() == DIGITS && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn name(data_reference: &str, commit: Oid) -> String {
    let id = commit.to_string();
    format!("{data_reference}{MARK}{}", &id[..DIGITS])
}

/// Pushes a commit to a side branch, unless the remote's branch has it. Returns the name of the side branch, if there is one.
pub(super) fn save(upstream: &LeaseRemote, commit: Oid) -> Result<Option<String>, RemoteError> {
    let data = &upstream.config.data_reference;
    let side = name(data, commit);
    let [there, found] = upstream.find([data, &side], LIMIT)?;
    upstream.bring(&[(data, there)])?;
    if let Some(there) = there
        && upstream.is_ancestor(commit, there)?
    {
        return Ok(None);
    }
    if found != Some(commit) {
        upstream.push(vec![(side.clone(), commit, found)], LIMIT)?;
    }
    Ok(Some(side))
}

/// Returns whether a commit is the empty first commit of a branch, which need not be saved.
pub(super) fn is_empty(upstream: &LeaseRemote, commit: Oid) -> bool {
    let look = || {
        let here = upstream.here().ok()?;
        let commit = here.find_commit(commit).ok()?;
        Some(commit.parent_count() == 0 && commit.tree().ok()?.is_empty())
    };
    look().unwrap_or(false)
}

/// Merges the side branches on the remote every `every` until `stopped`.
pub(super) async fn follow(
    upstream: LeaseRemote,
    merger: &Merger,
    statuses: &Statuses,
    every: Duration,
    mut stopped: watch::Receiver<bool>,
) {
    let mut last = None;
    loop {
        if let Err(error) = look(&upstream, merger, statuses).await {
            if last.as_ref() != Some(&error) {
                tracing::warn!(
                    remote = upstream.remote.name,
                    error,
                    "cannot look for unpushed writes of previous writers"
                );
            }
            last = Some(error);
        } else {
            last = None;
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

async fn look(upstream: &LeaseRemote, merger: &Merger, statuses: &Statuses) -> Result<(), String> {
    let (at, head) = (upstream.clone(), merger.head().data);
    let found = blocking(move || unmerged(&at, head)).await;
    for (side, commit) in found.map_err(|error| chain(&error))? {
        let options =
            MergeOptions { by: format!("merge of {side}").into(), dry_run: DryRun::Never, ..external::options("") };
        match merger.merge(commit, &options).await.map_err(|error| chain(&error))? {
            MergeOutcome::Done { keys, conflicts, rejected } => {
                let count = conflicts.count;
                tracing::info!(side, %commit, keys, conflicts = count, "merged unpushed writes of a previous writer");
                let remote = &upstream.remote.name;
                statuses.settle_rejected(merger, remote, &side, commit, &rejected).await;
                statuses.change(remote, |status| status.record_merge(commit, &conflicts));
            }
            MergeOutcome::Contained
            | MergeOutcome::NothingNew
            | MergeOutcome::Deferred
            | MergeOutcome::Moved
            | MergeOutcome::Refused(_) => {}
        }
    }
    Ok(())
}

/// Returns the remote's side branches that are not in the history of `head`, and fetches their commits.
fn unmerged(upstream: &LeaseRemote, head: Oid) -> Result<Vec<(String, Oid)>, RemoteError> {
    let data = &upstream.config.data_reference;
    let mut sides = upstream.beginning_with(&format!("{data}{MARK}"))?;
    sides.retain(|(side, commit)| *side == name(data, *commit));
    let here = upstream.here()?;
    let mut unmerged = Vec::new();
    for (side, commit) in sides {
        if here.find_commit(commit).is_ok() && upstream.is_ancestor(commit, head)? {
            continue;
        }
        upstream.bring(&[(&side, Some(commit))])?;
        if !upstream.is_ancestor(commit, head)? {
            unmerged.push((side, commit));
        }
    }
    Ok(unmerged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_branch_is_named_after_its_commit() {
        let commit = Oid::from_str("0123456789abcdef0123456789abcdef01234567").unwrap();
        assert_eq!(name("refs/heads/main", commit), "refs/heads/main-side-0123456789ab");
    }
}

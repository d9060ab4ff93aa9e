//! Prebuilt commits to which renewals move the lease reference.

use std::collections::VecDeque;

use git2::Oid;
use gitcd_repo::branch::WriteError;
use gitcd_repo::countdown::{self, Form};
use gitcd_repo::git_dir;

use super::record::Record;
use super::remote::LeaseRemote;

/// Commits in a chain: one pack is pushed for this many renewals.
const LENGTH: usize = 1000;
const FILE: (&str, &str) =
    ("README", "The writer lease of a branch that gitcd serves. The message of this commit says whose it is.\n");

/// The chain of prebuilt commits that renewals have not used yet.
#[derive(Debug, Default)]
pub(super) struct Chain {
    rest: VecDeque<Oid>,
}

impl Chain {
    /// Returns the commit for the next renewal. Blocks on the disk to write a new chain when this one has ended.
    pub(super) fn next(&mut self, upstream: &LeaseRemote, record: &Record) -> Result<Oid, WriteError> {
        if self.rest.is_empty() {
            self.rest = write(upstream, record, LENGTH)?.into();
        }
        Ok(self.rest.pop_front().expect("it was just filled"))
    }
}

/// Writes a chain of one commit, for a record that ends the lease.
pub(super) fn last(upstream: &LeaseRemote, record: &Record) -> Result<Oid, WriteError> {
    Ok(write(upstream, record, 1)?[0])
}

fn write(upstream: &LeaseRemote, record: &Record, count: usize) -> Result<Vec<Oid>, WriteError> {
    let config = &upstream.config;
    let form = Form { name: &config.committer_name, email: &config.committer_email, file: FILE };
    let branch = &config.data_reference;
    let commits = countdown::write(&git_dir(&config.repository), form, count, |left| record.message(branch, left))?;
    if let Err(error) = upstream.keep(&super::record::reference(branch), commits[0]) {
        // Then `git gc` may prune the commits before they are used.
        tracing::debug!(%error, "cannot protect the lease's commits from garbage collection");
    }
    Ok(commits)
}

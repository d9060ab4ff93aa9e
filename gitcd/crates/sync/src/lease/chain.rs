//! The commits that a holder moves the reference along.

use std::collections::VecDeque;

use git2::Oid;
use gitcd_repo::branch::WriteError;
use gitcd_repo::countdown::{self, Form};
use gitcd_repo::git_dir;

use super::place::Place;
use super::record::Record;

/// So many renewals are sent at once: one pack for all of them.
const LENGTH: usize = 1000;
const FILE: (&str, &str) =
    ("README", "The writer lease of a branch that gitcd serves. The message of this commit says whose it is.\n");

/// What the reference is to be next, again and again.
#[derive(Debug, Default)]
pub(super) struct Chain {
    rest: VecDeque<Oid>,
}

impl Chain {
    /// The next one. Blocks on the disk once in a while.
    pub(super) fn next(&mut self, place: &Place, record: &Record) -> Result<Oid, WriteError> {
        if self.rest.is_empty() {
            self.rest = write(place, record, LENGTH)?.into();
        }
        Ok(self.rest.pop_front().expect("it was just filled"))
    }
}

/// The last one.
pub(super) fn last(place: &Place, record: &Record) -> Result<Oid, WriteError> {
    Ok(write(place, record, 1)?[0])
}

fn write(place: &Place, record: &Record, count: usize) -> Result<Vec<Oid>, WriteError> {
    let config = &place.config;
    let form = Form { name: &config.committer_name, email: &config.committer_email, file: FILE };
    let branch = &config.data_reference;
    let commits = countdown::write(&git_dir(&config.repository), form, count, |left| record.message(branch, left))?;
    if let Err(error) = place.keep(&super::record::reference(branch), commits[0]) {
        // Then `git gc` may take them away before they are used, and new ones are made.
        tracing::debug!(%error, "the lease's commits have no reference here");
    }
    Ok(commits)
}

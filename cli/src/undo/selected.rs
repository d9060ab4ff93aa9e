//! The selected branch, and when it has what was written.

use std::time::Duration;

use anyhow::{Context as _, bail};
use gitcd::git::branch::Config;
use gitcd::history::when::When;
use gitcd::history::{History, HistoryError};
use gitcd::keyspace::KeySpace;
use gitcd::store::revision::Revision;
use gitcd::uncommitted::{LocalState, Uncommitted};
use tokio::time::{Instant, sleep};

use super::branch::Branch;
use crate::location::Location;

/// How long the store may take to commit what kube-apiserver has written. With large directories on a slow machine, a commit takes up
/// to a minute.
const COMMITTED_WITHIN: Duration = Duration::from_mins(2);
/// When the user is informed about the wait.
const REPORTED_AFTER: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The selected branch: its repository and references.
pub(super) struct Selected {
    location: Location,
    find_prefix: bool,
}

impl Selected {
    /// Selects a branch. With `find_prefix`, the key prefix is derived from the keys.
    pub(super) fn new(location: Location, find_prefix: bool) -> Self {
        Self { location, find_prefix }
    }

    fn open(&self) -> Result<History, HistoryError> {
        let Location { repository, data, metadata, .. } = &self.location;
        let config = Config {
            data_reference: data.clone(),
            metadata_reference: metadata.clone(),
            keys: KeySpace::new("/registry", [""; 0]),
            ..Config::named(repository.clone(), "default")
        };
        History::open(config, self.find_prefix)
    }

    /// Opens the branch as it is in Git now.
    pub(super) fn open_now(&self) -> anyhow::Result<Branch> {
        let history = self.open()?;
        let tip = history.at(When::Now)?;
        Ok(Branch { history, tip })
    }

    /// Opens the branch when Git has all that was written up to a revision of the store; without one, up to now. Revisions of events
    /// and leases are never committed, and not awaited. A clone is opened as it is.
    ///
    /// # Errors
    /// The store does not commit the writes in time.
    pub(super) async fn open_settled(&self, revision: Option<i64>) -> anyhow::Result<Branch> {
        self.open_settled_within(revision, COMMITTED_WITHIN).await
    }

    async fn open_settled_within(&self, mut wanted: Option<i64>, within: Duration) -> anyhow::Result<Branch> {
        let start = Instant::now();
        let mut is_reported = false;
        // The writes that the journal has after a revision in Git do not change.
        let mut known: Option<(i64, Uncommitted)> = None;
        loop {
            let branch = self.open_now()?;
            let revision = branch.history.revision();
            if wanted.is_some_and(|wanted| revision >= wanted) {
                return Ok(branch);
            }
            let missing = match known.take().filter(|(known, _)| *known == revision) {
                Some((_, missing)) => missing,
                None => match self.uncommitted(&branch, wanted)? {
                    Some(missing) => missing,
                    None => return Ok(self.warn_of_clone(branch, wanted)),
                },
            };
            if missing.keys.is_empty() {
                // Unless there was a commit meanwhile, the journal was complete.
                if self.open()?.revision() != revision {
                    continue;
                }
                let has_all = wanted.is_none_or(|wanted| missing.last.is_some_and(|last| last.get() >= wanted));
                return Ok(if has_all { branch } else { self.warn_of_clone(branch, wanted) });
            }
            // What is written from now on need not be awaited.
            let wanted = *wanted.get_or_insert(missing.last.map_or(revision, Revision::get));
            if start.elapsed() > within {
                if !has_effect(&branch, &missing)? {
                    return Ok(branch);
                }
                bail!(
                    "{} in {} is at revision {revision}, and the store has not committed the writes up to revision {wanted} within \
                     {} seconds: `gitcd status` shows why; run this again",
                    self.location.data,
                    self.location.repository.display(),
                    within.as_secs()
                );
            }
            if !is_reported && start.elapsed() > REPORTED_AFTER {
                is_reported = true;
                trishanku_stdio::eprintln!(
                    "waiting for the store to commit the writes up to revision {wanted}; Git has revision {revision}"
                );
            }
            known = Some((revision, missing));
            sleep(LOOK_EVERY).await;
        }
    }

    /// Returns the writes that Git lacks, up to a revision of the store; `None` if the repository is a clone.
    fn uncommitted(&self, branch: &Branch, until: Option<i64>) -> anyhow::Result<Option<Uncommitted>> {
        let after = Revision::new(branch.history.revision());
        let repository = &self.location.repository;
        let read = || {
            let state = LocalState::find(repository, &branch.history.incarnation()?)?;
            let missing = state.map(|state| state.writes_after(after, until.map(Revision::new))).transpose()?;
            Ok::<_, anyhow::Error>(missing)
        };
        read().with_context(|| {
            format!("cannot read which writes the gitcd of {} has not committed yet", repository.display())
        })
    }

    fn warn_of_clone(&self, branch: Branch, wanted: Option<i64>) -> Branch {
        let behind = branch.history.revision();
        if let Some(revision) = wanted.filter(|revision| behind < *revision) {
            trishanku_stdio::eprintln!(
                "{} is a clone at revision {behind}, and kube-apiserver is at {revision}: fetch it to see the latest changes",
                self.location.repository.display()
            );
        }
        branch
    }

    /// Opens the branch when it has a revision of the store, which is committed, and none of these objects. Returns `None` if the
    /// store does not commit them in time, or if the repository is a clone.
    pub(super) async fn open_with(&self, revision: i64, deleted: &[&str]) -> anyhow::Result<Option<Branch>> {
        let deadline = Instant::now() + COMMITTED_WITHIN;
        while Instant::now() < deadline {
            let branch = self.open_now()?;
            let has_all = branch.history.revision() >= revision;
            if has_all && branch.keys(|key| deleted.contains(&key))?.is_empty() {
                return Ok(Some(branch));
            }
            if LocalState::find(&self.location.repository, &branch.history.incarnation()?)?.is_none() {
                return Ok(None);
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }
}

/// Returns whether writes change the state that Git has. The store makes no commit of a key that it created and deleted.
fn has_effect(branch: &Branch, Uncommitted { keys, .. }: &Uncommitted) -> anyhow::Result<bool> {
    for (key, exists) in keys {
        if *exists || branch.history.get(&branch.tip, key)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests;

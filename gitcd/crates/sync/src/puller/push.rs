//! Pushes to a remote: the branch, and its metadata if the remote's metadata is ours.

use std::sync::Arc;

use git2::Oid;
use gitcd_engine::committer::Head;
use gitcd_repo::git_dir;
use gitcd_repo::refs::Refs;

use super::super::remote::{Fetched, Link, Push, Remote, RemoteError};
use super::super::status::Condition;
use super::{MergeError, PullError, Puller};

impl Puller {
    /// Returns where our branch is on the remote, after a pull that failed.
    pub(super) async fn look(&self, remote: &Remote, link: &Arc<Link>) -> Result<Fetched, PullError> {
        let (wanted, config, link) = (remote.clone(), self.merger.config().clone(), link.clone());
        let found = tokio::task::spawn_blocking(move || wanted.own(&config, &link).or_else(|_| wanted.known(&config)));
        Ok(found.await.expect("looking at references does not panic")?)
    }

    /// Pushes the branch, and its metadata if the remote's metadata is ours. Returns the commit to which the branch was moved,
    /// if it was, and our head that is on the remote now.
    ///
    /// Fails without the writer lease: another server may write the branch by now, and our commits go to a side branch. The
    /// lease is checked after `there` was read: if another server starts to write later, the compare-and-swap of its metadata
    /// fails.
    pub(super) async fn push(
        &self,
        remote: &Remote,
        link: &Arc<Link>,
        there: Fetched,
    ) -> Result<(Option<Oid>, Head), PullError> {
        self.merger.store().newest().map_err(MergeError::Store)?;
        let (wanted, config, link) = (remote.clone(), self.merger.config().clone(), link.clone());
        let head = self.merger.head();
        let data = head.data;
        if there.own == Some(data) {
            // Another process may have pushed it.
            self.statuses.change(&remote.name, |status| status.pushed = Some(data.to_string()));
            // A jump of revisions is only in the metadata; without this push, another clone could repeat it.
            return self.push_metadata(remote, &link, there).await.map(|()| (None, head));
        }
        if let Some(own) = there.own
            && !self.merger.is_ancestor(own, data).await?
        {
            if self.merger.is_ancestor(data, own).await? {
                // It has all commits of ours, and nothing new that we merge.
                self.statuses.change(&remote.name, |status| status.pushed = Some(data.to_string()));
                return self.push_metadata(remote, &link, there).await.map(|()| (None, head));
            }
            // The branch has moved there: its commits must be merged first.
            let problem = format!("{} has commits there that are not merged here", self.merger.config().data_reference);
            return Err(RemoteError { remote: remote.name.clone(), condition: Condition::Raced, problem }.into());
        }
        let metadata = self.own_metadata(remote, there).await?;
        let pushed = tokio::task::spawn_blocking(move || {
            // In this order: the metadata may describe a later commit than the pushed one, never an earlier one.
            let data = (config.data_reference.clone(), data, there.own);
            let metadata = metadata.map(|oid| (config.metadata_reference.clone(), oid, there.own_metadata));
            wanted.push(
                &config,
                &link,
                &Push { updates: std::iter::once(data).chain(metadata).collect(), there: there.tips() },
            )
        });
        let bytes = pushed.await.expect("pushing does not panic")?;
        self.statuses.change(&remote.name, |status| {
            status.pushed = Some(data.to_string());
            status.pushed_bytes += bytes;
        });
        Ok((Some(data), head))
    }

    /// Pushes only the metadata, if it continues the remote's.
    async fn push_metadata(&self, remote: &Remote, link: &Arc<Link>, there: Fetched) -> Result<(), PullError> {
        if there.own_metadata.is_none() {
            return Ok(());
        }
        let Some(metadata) = self.own_metadata(remote, there).await?.filter(|own| Some(*own) != there.own_metadata)
        else {
            return Ok(());
        };
        let (wanted, config, link) = (remote.clone(), self.merger.config().clone(), link.clone());
        let pushed = tokio::task::spawn_blocking(move || {
            let update = (config.metadata_reference.clone(), metadata, there.own_metadata);
            wanted.push(&config, &link, &Push { updates: vec![update], there: there.tips() })
        });
        let bytes = pushed.await.expect("pushing does not panic")?;
        self.statuses.change(&remote.name, |status| status.pushed_bytes += bytes);
        Ok(())
    }

    /// Returns our metadata commit unless the remote's is another server's, which is never overwritten.
    async fn own_metadata(&self, remote: &Remote, there: Fetched) -> Result<Option<Oid>, PullError> {
        let (folder, name) =
            (git_dir(&self.merger.config().repository), self.merger.config().metadata_reference.clone());
        let read = tokio::task::spawn_blocking(move || Refs::open(&folder).and_then(|refs| refs.read(&name)));
        let own = read.await.expect("reading a reference does not panic").map_err(|error| RemoteError {
            remote: remote.name.clone(),
            condition: Condition::Failed,
            problem: error.to_string(),
        })?;
        Ok(match (own, there.own_metadata) {
            (Some(own), Some(theirs)) if !self.merger.is_ancestor(theirs, own).await.unwrap_or(false) => None,
            (own, _) => own,
        })
    }
}

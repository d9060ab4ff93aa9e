//! What goes to a remote: the branch, and its metadata if that is ours there.

use std::sync::Arc;

use git2::Oid;
use gitcd_engine::committer::Head;
use gitcd_repo::git_dir;
use gitcd_repo::refs::Refs;

use super::super::remote::{Fetched, Link, Push, Remote, RemoteError};
use super::super::status::Condition;
use super::{JoinError, PullError, Puller};

impl Puller {
    /// Where our branch is there, although nothing can be pulled.
    pub(super) async fn look(&self, remote: &Remote, link: &Arc<Link>) -> Result<Fetched, PullError> {
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let found = tokio::task::spawn_blocking(move || wanted.own(&config, &link).or_else(|_| wanted.known(&config)));
        Ok(found.await.expect("looking at references does not panic")?)
    }

    /// Pushes the branch, and its metadata if that is ours there; returns what the branch was moved to, and what is known to be there now.
    ///
    /// Without its lease a server pushes nothing: somebody else may write the branch by now, and what they have not got goes beside it.
    /// This is asked after `there` was looked at. If another writer begins later, its metadata is not what is expected here any more.
    pub(super) async fn push(
        &self,
        remote: &Remote,
        link: &Arc<Link>,
        there: Fetched,
    ) -> Result<(Option<Oid>, Head), PullError> {
        self.joiner.store().newest().map_err(JoinError::Store)?;
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let head = self.joiner.head();
        let data = head.data;
        if there.own == Some(data) {
            // Also if another process has brought it there.
            self.statuses.change(&remote.name, |status| status.pushed = Some(data.to_string()));
            // A jump of revisions is in the metadata only, and must not be made twice.
            return self.push_metadata(remote, &link, there).await.map(|()| (None, head));
        }
        if let Some(own) = there.own
            && !self.joiner.is_ancestor(own, data).await?
        {
            if self.joiner.is_ancestor(data, own).await? {
                // It has all of ours, and nothing that we take.
                self.statuses.change(&remote.name, |status| status.pushed = Some(data.to_string()));
                return self.push_metadata(remote, &link, there).await.map(|()| (None, head));
            }
            // It moved on there: what it has comes first.
            let problem = format!("{} has commits there that are not merged here", self.joiner.config().data_reference);
            return Err(RemoteError { remote: remote.name.clone(), condition: Condition::Raced, problem }.into());
        }
        let metadata = self.own_metadata(remote, there).await?;
        let pushed = tokio::task::spawn_blocking(move || {
            // In this order: the metadata may describe a later commit than the one that is pushed, never an earlier one.
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

    /// Pushes the metadata alone, if it continues what is there.
    async fn push_metadata(&self, remote: &Remote, link: &Arc<Link>, there: Fetched) -> Result<(), PullError> {
        if there.own_metadata.is_none() {
            return Ok(());
        }
        let Some(metadata) = self.own_metadata(remote, there).await?.filter(|own| Some(*own) != there.own_metadata)
        else {
            return Ok(());
        };
        let (wanted, config, link) = (remote.clone(), self.joiner.config().clone(), link.clone());
        let pushed = tokio::task::spawn_blocking(move || {
            let update = (config.metadata_reference.clone(), metadata, there.own_metadata);
            wanted.push(&config, &link, &Push { updates: vec![update], there: there.tips() })
        });
        let bytes = pushed.await.expect("pushing does not panic")?;
        self.statuses.change(&remote.name, |status| status.pushed_bytes += bytes);
        Ok(())
    }

    /// Our metadata, if it is to be pushed: nobody else's is overwritten. Whoever serves the branch there has its own.
    async fn own_metadata(&self, remote: &Remote, there: Fetched) -> Result<Option<Oid>, PullError> {
        let (folder, name) =
            (git_dir(&self.joiner.config().repository), self.joiner.config().metadata_reference.clone());
        let read = tokio::task::spawn_blocking(move || Refs::open(&folder).and_then(|refs| refs.read(&name)));
        let own = read.await.expect("reading a reference does not panic").map_err(|error| RemoteError {
            remote: remote.name.clone(),
            condition: Condition::Failed,
            problem: error.to_string(),
        })?;
        Ok(match (own, there.own_metadata) {
            (Some(own), Some(theirs)) if !self.joiner.is_ancestor(theirs, own).await.unwrap_or(false) => None,
            (own, _) => own,
        })
    }
}

//! Pushes to a remote: the branch, and its metadata if the remote's metadata is ours.

use git2::Oid;
use gitcd_engine::committer::Head;

use super::{PullError, Puller};
use crate::git_worker::{Git, blocking};
use crate::merger::MergeError;
use crate::plan::PlanError;
use crate::remote::{Fetched, Link, Push, Remote, RemoteError};
use crate::status::Condition;

/// The result of a push.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    /// The commit to which the branch was moved, if it was.
    pub(super) moved_to: Option<Oid>,
    /// Our head that is on the remote now.
    pub(super) head: Head,
}

/// What a push has to move.
#[derive(Clone, Copy, Debug)]
enum PushPlan {
    /// The branch there has all commits of ours. A jump of revisions is only in the metadata; without its push, another clone
    /// could repeat it.
    Metadata(Option<Oid>),
    /// The branch, and its metadata if the remote's is ours.
    Branch { metadata: Option<Oid> },
    /// Nothing yet: the branch has moved there, and its commits must be merged first.
    Diverged,
}

impl Puller {
    /// Pushes the branch, and its metadata if the remote's metadata is ours.
    ///
    /// Fails without the writer lease: another server may write the branch by now, and our commits go to a side branch. The
    /// lease is checked after `there` was read: if another server starts to write later, the compare-and-swap of its metadata
    /// fails.
    pub(super) async fn push(&self, remote: &Remote, link: &Link, there: Fetched) -> Result<Pushed, PullError> {
        self.merger.store().newest().map_err(MergeError::Store)?;
        let head = self.merger.head();
        let config = self.merger.config().clone();
        let (name, reference) = (remote.name.clone(), config.metadata_reference.clone());
        // In this order: the metadata may describe a later commit than the pushed one, never an earlier one.
        let plan = self.merger.git().run(move |git| plan(git, head.data, &reference, there, &name)).await?;
        let data = (config.data_reference.clone(), head.data, there.own);
        let metadata = |oid| (config.metadata_reference.clone(), oid, there.own_metadata);
        let updates = match plan {
            PushPlan::Metadata(moved) => moved.map(metadata).into_iter().collect(),
            PushPlan::Branch { metadata: moved } => std::iter::once(data).chain(moved.map(metadata)).collect(),
            PushPlan::Diverged => {
                let problem = format!("{} has commits there that are not merged here", config.data_reference);
                return Err(RemoteError::new(&remote.name, Condition::Raced, problem).into());
            }
        };
        let has_branch = matches!(plan, PushPlan::Metadata(_));
        if has_branch {
            // Another process may have pushed it.
            self.statuses.change(&remote.name, |status| status.pushed = Some(head.data.to_string()));
        }
        let push = Push { updates, there: there.tips() };
        if !push.updates.is_empty() {
            let (remote, link) = (remote.clone(), link.clone());
            let name = remote.name.clone();
            let bytes = blocking(move || remote.push(&config, &link, &push)).await?;
            self.statuses.change(&name, |status| {
                status.pushed = Some(head.data.to_string());
                status.pushed_bytes += bytes;
            });
        }
        Ok(Pushed { moved_to: (!has_branch).then_some(head.data), head })
    }
}

/// Decides what to push, if the remote's references are at `there`.
fn plan(
    git: &mut Git,
    data: Oid,
    metadata_reference: &str,
    there: Fetched,
    remote: &str,
) -> Result<PushPlan, PullError> {
    let Git { repository, refs, graph } = git;
    let mut is_ancestor = |ancestor, commit| graph.is_ancestor(repository, ancestor, commit);
    let graph_error = |error| PullError::from(MergeError::from(PlanError::from(error)));
    let has_all = match there.own {
        None => false,
        Some(own) if own == data => true,
        Some(own) if is_ancestor(own, data).map_err(graph_error)? => false,
        // It has all commits of ours, and nothing new that we merge.
        Some(own) if is_ancestor(data, own).map_err(graph_error)? => true,
        Some(_) => return Ok(PushPlan::Diverged),
    };
    if has_all && there.own_metadata.is_none() {
        return Ok(PushPlan::Metadata(None));
    }
    let own = refs
        .read(metadata_reference)
        .map_err(|error| RemoteError::new(remote, Condition::Failed, error.to_string()))?;
    // The metadata of another server is never overwritten.
    let metadata = match (own, there.own_metadata) {
        (Some(own), Some(theirs)) if !is_ancestor(theirs, own).unwrap_or(false) => None,
        (own, _) => own,
    };
    Ok(if has_all {
        PushPlan::Metadata(metadata.filter(|own| Some(*own) != there.own_metadata))
    } else {
        PushPlan::Branch { metadata }
    })
}

//! Options and outcomes of merges.

use std::sync::Arc;
use std::time::Duration;

use git2::Oid;
use gitcd_core::scope::Scope;
use gitcd_merge::{Conflict, Policy};
use gitcd_mvcc as store;
use gitcd_repo::refs::RefError;

use super::super::dry_run::Unavailable;
use super::super::git_worker::OpenError;
use super::super::plan::{Plan, PlanError, Provenance, Rejected};

/// Options of a merge.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// Which side wins conflicts.
    pub policy: Policy,
    /// Which keys are merged.
    pub scope: Scope,
    /// Whether the branch may fast-forward to their commit.
    pub fast_forward: bool,
    /// Whether to make the merge commit even if the trees are equal and the other side is the one to make it.
    pub impatient: bool,
    /// Whether to make a merge commit if theirs has nothing new among the merged keys.
    pub history_link: HistoryLink,
    /// If set, merges only if this is the branch's commit, and no uncommitted write conflicts.
    pub on_top_of: Option<Oid>,
    /// Whether one rejected file rejects the whole merge.
    pub strict: bool,
    /// Whether files in external commits get a dry run at the store's kube-apiserver, if it has one.
    pub dry_run: DryRun,
    /// Which commits count as gitcd's own.
    pub provenance: Provenance,
    /// The writer to report to watchers and in commits.
    pub by: Arc<str>,
}

/// When pushed files are sent to the kube-apiserver as dry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// Never, for commits that other branches have accepted.
    Never,
    /// If the kube-apiserver is reachable; otherwise only the rules for files apply.
    IfReachable,
    /// Required: the merge fails while the kube-apiserver is unreachable.
    Required,
}

/// When to add a history link although theirs has nothing new among the merged keys; only for merges that leave keys out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryLink {
    /// Not before theirs has something new.
    WithChanges,
    /// If ours is to be pushed on top of theirs, because it has commits that theirs lacks.
    ToPush,
    /// Immediately, so that the reference to theirs can move on.
    Always,
}

/// Conflicts of a merge: keys and fields that both sides changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conflicts {
    /// Their number.
    pub count: usize,
    /// The first of them with the paths of their files; at most [`store::merge::Conflicts::LISTED`].
    pub first: Vec<(String, Conflict)>,
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeOutcome {
    /// Our history already contains the commit.
    Contained,
    /// The commit has nothing new among the merged keys.
    NothingNew,
    /// Only the histories differ, and the other side is to add the history link.
    Deferred,
    /// The branch is no longer at [`MergeOptions::on_top_of`], or an uncommitted write conflicts.
    Moved,
    /// These files were rejected, and nothing was merged: the merge is strict, or our history already contains the commit.
    Refused(Vec<Rejected>),
    /// The commit was merged.
    Done {
        /// Number of keys that changed here.
        keys: usize,
        /// The conflicts that the merge resolved.
        conflicts: Conflicts,
        /// Files that were rejected.
        rejected: Vec<Rejected>,
    },
}

impl MergeOptions {
    pub(super) fn is_needless(&self, plan: &Plan) -> bool {
        plan.nothing_new
            && match self.history_link {
                HistoryLink::WithChanges => true,
                HistoryLink::ToPush => plan.follows,
                HistoryLink::Always => false,
            }
    }

    /// Returns whether to leave the history link to the other side. Exactly one of the two sides adds it, so that they do not
    /// merge each other's merges for ever.
    pub(super) fn defers_link(&self, plan: &Plan, ours: Oid, theirs: Oid) -> bool {
        plan.same_tree && !plan.fast_forward && !self.impatient && ours > theirs
    }
}

/// Why a commit was not merged, or its merge not committed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// The merge cannot be computed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The reference that protects the commit from garbage collection cannot be written.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The repository cannot be opened.
    #[error("cannot open the repository: {0}")]
    Repository(String),
    /// The kube-apiserver did not complete a dry run.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The store rejects the merge.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The server stopped before the merge was committed; the journal has it.
    #[error("stopped before the merge was committed; the next start commits it")]
    Stopped,
    /// The committer made no progress; the journal has the merge.
    #[error(
        "the branch was not committed for {0:?}: the log says why commits fail; once they succeed, the merge is committed"
    )]
    NotCommitted(Duration),
}

impl From<OpenError> for MergeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Repository(error) => Self::Repository(error.message().to_owned()),
            OpenError::References(error) => Self::Reference(error),
        }
    }
}

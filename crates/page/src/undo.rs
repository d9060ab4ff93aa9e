//! The program that reverts commits for the page.

use futures::future::BoxFuture;
use gitcd_history::fields::Field;

/// Which changes are reverted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoRequest {
    /// The ID of the commit.
    pub commit: String,
    /// The key of the only object whose change is reverted, below `/registry/`; `None` for all of the commit.
    pub key: Option<String>,
}

/// What an undo would do.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// The objects, in the order of the requests.
    pub steps: Vec<PreviewStep>,
    /// The number of objects that would be changed.
    pub changes: usize,
    /// The numbers of the plan, in words.
    pub summary: String,
    /// Warnings about the whole plan, such as that the commit has changes of several users.
    pub warnings: Vec<String>,
    /// The ID of the preview, by which it is confirmed.
    pub plan: String,
    /// The command line that deletes objects whose immutable fields differ, and creates them again; `None` if there is none, or if
    /// none of a sensible length does it.
    pub recreate: Option<String>,
}

/// What an undo would do to an object.
#[derive(Clone, Debug, Default)]
pub struct PreviewStep {
    /// What is done, such as `update`, or `unchanged`, `left` and `blocked` if nothing is.
    pub action: String,
    /// The object, such as `ConfigMap shop/prices`.
    pub object: String,
    /// The fields that would change. Values of Secrets are hidden.
    pub fields: Vec<Field>,
    /// Fields that were edited later and keep their values.
    pub stays: Vec<String>,
    /// Remarks, such as that the object gets a new uid.
    pub notes: Vec<String>,
    /// Why nothing is done, or why kube-apiserver would reject it.
    pub problem: Option<String>,
}

impl PreviewStep {
    /// Returns whether the object is part of what is reverted, and not left as it is.
    pub(crate) fn is_request(&self) -> bool {
        !matches!(self.action.as_str(), "unchanged" | "left")
    }
}

/// What an undo did.
#[derive(Clone, Debug, Default)]
pub struct Undone {
    /// The objects, in the order in which they were changed.
    pub steps: Vec<UndoneStep>,
    /// The IDs of the commits that have it, newest first; empty if the store has not committed it in time.
    pub commits: Vec<String>,
    /// Whether these commits have changes of other objects, too.
    pub has_others: bool,
    /// The command line that reverts it.
    pub hint: Option<String>,
    /// As in [`Preview::recreate`], if a step failed because of an immutable field.
    pub recreate: Option<String>,
}

/// What an undo did to an object.
#[derive(Clone, Debug)]
pub struct UndoneStep {
    /// The object, such as `ConfigMap shop/prices`.
    pub object: String,
    /// What was done, such as `updated`, or why it failed.
    pub outcome: Result<String, String>,
    /// Whether the object was changed.
    pub is_changed: bool,
    /// Remarks, such as that the object has a new uid.
    pub notes: Vec<String>,
}

/// Why a commit was not undone.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UndoError {
    /// The plan is another one than that of the preview, or the preview is too old. Has a preview of the plan as it is now.
    #[error("the objects have changed since the preview")]
    Changed(Box<Preview>),
    /// The plan cannot be made.
    #[error("{0}")]
    Failed(String),
    /// An internal error: some objects may have been changed.
    #[error("an internal error, after which some objects may have been changed: {0}")]
    Interrupted(String),
}

/// Reverts commits.
pub trait Undo: Send + Sync {
    /// Returns what an undo would do, and what kube-apiserver would reject. Changes nothing.
    ///
    /// # Errors
    /// [`UndoError::Failed`].
    fn preview(&self, request: UndoRequest) -> BoxFuture<'static, Result<Preview, UndoError>>;

    /// Reverts the changes if the plan is still that of the preview with the ID `plan`. A preview that was confirmed before returns
    /// what it did then. Goes on if the future is dropped.
    ///
    /// # Errors
    /// [`UndoError`]; except for [`UndoError::Interrupted`], nothing was changed.
    fn apply(&self, request: UndoRequest, plan: String) -> BoxFuture<'static, Result<Undone, UndoError>>;
}

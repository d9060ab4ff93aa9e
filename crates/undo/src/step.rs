//! What a plan does for one object.

use gitcd_history::fields::Field;
use serde_json::Value;

use crate::document::text;
use crate::subject::ObjectRef;

/// When a step is sent: all steps of a wave may be sent together, after those of the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wave(pub(crate) usize);

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates an object that does not exist.
    Create {
        /// The object to create. References to owners may have old uids of objects that the plan creates.
        object: Value,
    },
    /// Replaces an object, if it is unchanged.
    Update {
        /// The new object, with the uid and the resource version of `current`.
        object: Value,
        /// The object as it was when the plan was made: the base of a merge if it has changed since.
        current: Value,
    },
    /// Deletes an object, if it is unchanged.
    Delete {
        /// The object as it was when the plan was made.
        current: Value,
    },
    /// Does nothing: the reason, as a clause without the name of the object.
    Nothing(String),
    /// The object is left to its controller: the reason.
    Left(String),
    /// The change is impossible or would lose data: the reason and a remedy.
    Blocked(String),
}

/// The step for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The object.
    pub object: ObjectRef,
    /// What to do.
    pub action: Action,
    /// The fields that change; values of Secrets are hidden.
    pub fields: Vec<Field>,
    /// Fields that were edited later, and keep their values; values of Secrets are hidden.
    pub stays: Vec<String>,
    /// What does not come back, and what else to know.
    pub notes: Vec<String>,
    /// The keys of what would be deleted with the object, because of which the step is blocked.
    pub contents: Vec<String>,
    /// Other objects that Kubernetes deletes with the object, because nothing else owns them.
    pub dependents: Vec<ObjectRef>,
    /// When the step is sent.
    pub wave: Wave,
    pub(crate) old_uid: Option<String>,
}

impl Step {
    /// Returns the uid that a created object had before; `None` for other steps.
    pub fn old_uid(&self) -> Option<String> {
        self.old_uid.clone().filter(|_| matches!(self.action, Action::Create { .. }))
    }

    /// Returns the uid by which objects refer to this one as their owner: that which a created object had before, or that of an
    /// object that is updated, which may have to be deleted and created again.
    pub(crate) fn owner_uid(&self) -> Option<String> {
        match &self.action {
            Action::Update { current, .. } => Some(text(current, "/metadata/uid").to_owned()),
            _ => self.old_uid(),
        }
    }

    /// Blocks the step.
    pub(crate) fn block(&mut self, reason: String) {
        self.action = Action::Blocked(reason);
        self.fields.clear();
    }

    /// Returns the object that the step writes or deletes.
    pub fn target(&self) -> Option<&Value> {
        match &self.action {
            Action::Create { object } | Action::Update { object, .. } => Some(object),
            Action::Delete { current } => Some(current),
            _ => None,
        }
    }

    /// Returns whether the step sends a request.
    pub fn is_request(&self) -> bool {
        self.target().is_some()
    }

    /// Returns `create`, `update`, `delete`, `unchanged`, `left` or `blocked`.
    pub fn word(&self) -> &'static str {
        match self.action {
            Action::Create { .. } => "create",
            Action::Update { .. } => "update",
            Action::Delete { .. } => "delete",
            Action::Nothing(_) => "unchanged",
            Action::Left(_) => "left",
            Action::Blocked(_) => "blocked",
        }
    }
}

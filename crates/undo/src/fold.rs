//! Reverts changes of one object, newest first, three-way: what was edited later stays.

use gitcd_merge::schema::Schemas;
use gitcd_merge::{Conflict, Outcome, Policy, Side, has_edit_of_a_person, merge};
use serde_json::Value;

use crate::document::{content, is_alike, is_same, is_terminating, over};
use crate::subject::Change;

/// The result of reverting changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folded {
    /// The object without the changes; `None` if it should not exist.
    pub desired: Option<Value>,
    /// Fields that were edited later, and keep their values.
    pub stays: Vec<Conflict>,
    /// What else is not reverted, as sentences without the name of the object.
    pub notes: Vec<String>,
    /// Why the object must not be changed at all.
    pub blocked: Option<String>,
}

/// Reverts `changes`, which are ordered newest first, on top of `current`.
pub fn revert(schemas: &Schemas, current: Option<&Value>, changes: &[Change]) -> Folded {
    let mut folded = Folded { desired: current.cloned(), ..Folded::default() };
    for change in changes {
        if folded.blocked.is_none() {
            folded.revert(schemas, change, current.is_some());
        }
    }
    folded
}

/// Merges `theirs` into `ours` with a common base. Fields that both changed keep the value of `ours`, and are returned.
pub fn three_way(schemas: &Schemas, base: &Value, ours: &Value, theirs: &Value) -> (Value, Vec<Conflict>) {
    let bytes = [base, ours, theirs].map(|version| content(version).to_string().into_bytes());
    let sides = (Some(Side::of(&bytes[1])), Some(Side::of(&bytes[2])));
    let merged = merge(schemas, Policy::Ours, Some(&bytes[0]), sides.0, sides.1);
    let result = match merged.outcome {
        Outcome::Theirs => content(theirs),
        Outcome::New(value) => serde_json::from_slice(&value).unwrap_or_else(|_| content(ours)),
        Outcome::Ours | Outcome::Deleted => content(ours),
    };
    (over(ours, &result), merged.conflicts)
}

impl Folded {
    fn revert(&mut self, schemas: &Schemas, change: &Change, exists: bool) {
        let now = self.desired.take();
        self.desired = match (&change.before, &change.after, now) {
            (Some(before), Some(after), Some(now)) if !exists && is_deletion(before, after) => {
                // A newer change was the end of the deletion that this one requested.
                let (merged, stays) = three_way(schemas, after, &now, before);
                self.stays.extend(stays);
                Some(over(before, &merged))
            }
            (Some(before), Some(after), Some(now)) => Some(self.updated(schemas, before, after, now)),
            (Some(before), Some(after), None) if is_deletion(before, after) => {
                // The object disappeared because of this change, when its last finalizer was removed.
                Some(before.clone())
            }
            (Some(before), None, None) => Some(before.clone()),
            (Some(_), Some(_), None) => {
                self.notes.push("it was deleted since, and stays deleted".to_owned());
                None
            }
            (Some(_), None, Some(now)) => {
                self.notes.push("it was created again since, and stays".to_owned());
                Some(now)
            }
            (None, Some(after), Some(now)) => self.uncreated(after, now),
            (None, _, now) => now,
        };
    }

    fn updated(&mut self, schemas: &Schemas, before: &Value, after: &Value, now: Value) -> Value {
        if is_deletion(before, after) && is_terminating(&now) {
            self.blocked = Some(terminating(&now));
            return now;
        }
        if !is_same(&now, after) {
            self.notes.push("it was deleted and created again since".to_owned());
        }
        let (merged, stays) = three_way(schemas, after, &now, before);
        self.stays.extend(stays);
        merged
    }

    fn uncreated(&mut self, after: &Value, now: Value) -> Option<Value> {
        if !is_same(&now, after) {
            self.notes.push("it was deleted and created again since, and stays".to_owned());
            return Some(now);
        }
        let bytes = [after, &now].map(|version| version.to_string().into_bytes());
        if !is_alike(after, &now) && has_edit_of_a_person(Some(&bytes[0]), &bytes[1]) {
            self.blocked =
                Some("it was edited since its creation, and these edits would be lost; undo them first, or delete the object".to_owned());
            return Some(now);
        }
        None
    }
}

/// Returns whether a change requested the deletion of an object.
fn is_deletion(before: &Value, after: &Value) -> bool {
    is_terminating(after) && !is_terminating(before)
}

/// Returns why an object that is being deleted cannot be changed.
pub fn terminating(object: &Value) -> String {
    let names = |pointer: &str| {
        let items = object.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    let finalizers = [names("/metadata/finalizers"), names("/spec/finalizers")].concat();
    let remedy = "a deletion cannot be stopped. Wait until the object is gone, and run this again";
    match &finalizers[..] {
        [] => format!("it is being deleted, and {remedy}"),
        [one] if one == "kubernetes" => {
            format!("it is being deleted with its content, and {remedy}")
        }
        names => format!(
            "it is being deleted, and waits for the finalizers {}; {remedy}. If nothing removes a finalizer, its controller does not run",
            names.join(", ")
        ),
    }
}

//! Changes of other branches, as a merge made them here.
//!
//! A commit of another branch changed the object of that branch. To revert it, the change is needed that its merge made to the object
//! of this branch. For an update both are the same, since it is reverted field by field. But a deletion also took the edits of this
//! branch with it.

use gitcd::history::commits::BranchCommit;
use gitcd::history::find::MergeSides;
use trishanku_undo::{Change, document};

use super::branch::{Branch, Values};

/// Returns the changes of this branch, newest first, that a deletion by a commit of another branch has become in its merge. `None` if
/// the commit's own change is the one to revert.
pub(super) fn deletion(
    branch: &Branch,
    merge: &BranchCommit,
    commit: &BranchCommit,
    key: &str,
    values: &Values,
) -> anyhow::Result<Option<Vec<Values>>> {
    let [Some(before), after] = values else { return Ok(None) };
    if is_terminating(before) || after.as_deref().is_some_and(|after| !is_terminating(after)) {
        return Ok(None);
    }
    let MergeSides { base, ours, merged } =
        branch.history.merge_sides(merge, commit.commit.oid, &Branch::whole(key))?;
    if merged.as_deref().is_some_and(|merged| !is_terminating(merged)) {
        // The merge kept the object.
        return Ok(None);
    }
    let Some(ours) = ours else {
        // Here it was deleted as well, which stays.
        return Ok(base.map(|_| vec![[Some(before.clone()), Some(before.clone())]]));
    };
    // The merge deleted the object of this branch. Without the deletion, it would have the edits of both branches. So the second
    // change takes away that the merge lacks those of the other branch.
    let base = base.filter(|base| is_same_object(base, &ours) && is_same_object(base, before));
    let edits = base.map(|base| [Some(before.clone()), Some(base)]);
    Ok(Some([Some([Some(ours), merged]), edits].into_iter().flatten().collect()))
}

/// Returns whether a change only completes a deletion that was requested before, when its last finalizer was removed.
pub(super) fn is_completion(change: &Change) -> bool {
    change.after.is_none() && change.before.as_ref().is_some_and(document::is_terminating)
}

fn is_terminating(value: &[u8]) -> bool {
    let change = Change::read(Some(value), None);
    change.is_ok_and(|change| change.before.as_ref().is_some_and(document::is_terminating))
}

/// Returns whether two values are versions of one object.
fn is_same_object(one: &[u8], other: &[u8]) -> bool {
    let Ok(Change { before: Some(one), after: Some(other) }) = Change::read(Some(one), Some(other)) else {
        return false;
    };
    document::is_same(&one, &other)
}

//! The commits to undo, and those that an undo makes.

use std::collections::BTreeSet;

use gitcd::history::History;
use gitcd::history::commits::BranchCommit;
use gitcd::history::managers;
use gitcd::history::moment::Moment;

use super::apply::{Done, Outcome};
use super::branch::Branch;

/// The field manager of all writes.
const MANAGER: &str = "trishanku-undo";
/// Most commits in a hint.
const SHOWN: usize = 8;

/// Finds commits by their IDs, newest first.
pub(super) fn find(history: &History, ids: &[String]) -> anyhow::Result<Vec<BranchCommit>> {
    let mut found = ids.iter().map(|id| history.find_commit(id)).collect::<Result<Vec<_>, _>>()?;
    // A commit of another branch has no revision here.
    let place = |commit: &BranchCommit| (commit.commit.time, commit.revisions.map(|own| own.last), commit.commit.oid);
    found.sort_by_key(|commit| std::cmp::Reverse(place(commit)));
    found.dedup_by(|one, other| one.commit.oid == other.commit.oid);
    Ok(found)
}

/// Returns the commits after a moment that have what an undo did, newest first.
pub(super) fn with(branch: &Branch, since: &Moment, outcomes: &[Outcome]) -> anyhow::Result<Vec<BranchCommit>> {
    let is_done = |wanted: &dyn Fn(Done) -> bool| -> BTreeSet<&str> {
        let done = outcomes.iter().filter(|outcome| outcome.result.as_ref().is_ok_and(|done| wanted(*done)));
        done.map(|outcome| outcome.object.key.as_str()).collect()
    };
    let written = is_done(&|done| matches!(done, Done::Created | Done::Updated | Done::Recreated));
    let deleted = is_done(&|done| matches!(done, Done::Deleted | Done::Recreated));
    let mut found = Vec::new();
    for commit in branch.history.commits_after(Some(since))? {
        let changes = branch.history.changes_of(&commit)?;
        let values = branch.values(&changes, |key| written.contains(key) || deleted.contains(key))?;
        let is_own = values.iter().any(|(key, [before, after])| match after {
            None => deleted.contains(key.as_str()),
            Some(after) => managers::between(before.as_deref(), Some(after)).iter().any(|name| name == MANAGER),
        });
        if is_own {
            found.push(commit);
        }
    }
    Ok(found)
}

/// Returns whether the commits have changes of other objects than those of an undo, which several writes at once can cause.
pub(super) fn has_others(branch: &Branch, commits: &[BranchCommit], outcomes: &[Outcome]) -> anyhow::Result<bool> {
    let own: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.object.key.as_str()).collect();
    for commit in commits {
        let changes = branch.history.changes_of(commit)?;
        if changes.keys.keys().filter_map(|key| branch.short(key)).any(|key| !own.contains(key.as_str())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the arguments with which an undo is undone. `has_others` is whether its commits have changes of others, too.
pub(super) fn hint(
    commits: &[BranchCommit],
    before: &Moment,
    outcomes: &[Outcome],
    has_others: bool,
) -> Option<String> {
    // A deletion has no field manager.
    let has_deletion = outcomes.iter().any(|outcome| matches!(outcome.result, Ok(Done::Deleted | Done::Recreated)));
    let ids: Vec<String> = commits.iter().map(|commit| commit.commit.oid.to_string()[..10].to_owned()).collect();
    match &ids[..] {
        [] => None,
        ids if ids.len() <= SHOWN && !has_others => Some(ids.join(" ")),
        _ if !has_deletion => Some(format!("--since={} --by={MANAGER}", before.revision)),
        ids => match objects(outcomes) {
            Some(objects) if has_others => Some(format!("{} {objects}", ids.join(" "))),
            _ => Some(ids.join(" ")),
        },
    }
}

/// Returns the arguments that select the objects of an undo, if they are few and in one namespace.
fn objects(outcomes: &[Outcome]) -> Option<String> {
    let done = outcomes.iter().filter(|outcome| outcome.result.as_ref().is_ok_and(|done| *done != Done::Unchanged));
    let objects: Vec<_> = done.map(|outcome| &outcome.object).collect();
    let namespaces: BTreeSet<_> = objects.iter().filter_map(|object| object.namespace.as_deref()).collect();
    if objects.len() > SHOWN || namespaces.len() > 1 {
        return None;
    }
    let word = |object: &&trishanku_undo::ObjectRef| match object.group() {
        "" => format!("{}/{}", object.kind.to_lowercase(), object.name),
        group => format!("{}.{group}/{}", object.kind.to_lowercase(), object.name),
    };
    let names: Vec<String> = objects.iter().map(word).collect();
    let namespace = namespaces.first().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    Some(format!("{}{namespace}", names.join(" ")))
}

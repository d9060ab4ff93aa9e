//! Folds runs of ordinary commits into one line.

use git2::Oid;

use super::walk::{History, unique};

/// A line of the graph: a commit, or a run of commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The commit, or the first of the run.
    pub(super) newest: Oid,
    /// The same commit, or the last of the run.
    pub(super) oldest: Oid,
    /// Number of commits.
    pub(super) folded: usize,
    /// Parents of the oldest commit.
    pub(super) parents: Vec<Oid>,
}

/// Returns the lines of a history. Commits that are `is_named` are not folded.
pub(super) fn fold(history: &History, is_named: impl Fn(Oid) -> bool, all: bool) -> Vec<Line> {
    let children = history.children();
    let is_ordinary = |oid: Oid| {
        let has_one_child = children.get(&oid) == Some(&1);
        !all && has_one_child && history.commits[&oid].parents.len() == 1 && !is_named(oid)
    };
    let mut lines: Vec<Line> = Vec::new();
    let mut is_open = false;
    for oid in history.order.iter().copied() {
        let parents: Vec<Oid> = unique(&history.commits[&oid].parents).collect();
        let ordinary = is_ordinary(oid);
        match lines.last_mut() {
            Some(run) if is_open && ordinary && run.parents == [oid] => {
                (run.oldest, run.parents) = (oid, parents);
                run.folded += 1;
            }
            _ => lines.push(Line { newest: oid, oldest: oid, folded: 1, parents }),
        }
        is_open = ordinary;
    }
    lines
}

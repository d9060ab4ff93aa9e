//! Plan of a merge of two commits: which keys it changes, and how.
//!
//! Reads only Git. The cost grows with the differences between the two commits and their merge bases. If a merge is among the
//! commits that only one history has, it also grows with the changes in these commits.

mod bases;
mod edits;
#[cfg(test)]
mod fixtures;
mod key;
mod left_out;
#[cfg(test)]
mod model;
#[cfg(test)]
mod model_deletions;
mod namespaces;
mod origins;
mod schemas;
mod tried;

use std::collections::HashMap;
use std::sync::Arc;

use git2::{Odb, Oid, Repository};
use gitcd_core::keyspace::{KeySpace, Placement};
use gitcd_core::scope::Scope;
use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::SecretKinds;
use gitcd_merge::{Outcome, Policy};
use gitcd_mvcc::merge::Key;
use gitcd_repo::changes::{self, TreeError};
use gitcd_repo::graph::{Commit, Graph, GraphError, MergeBases};

use self::bases::Base;
use self::edits::Edits;
use self::left_out::may_have_left_out;
use self::origins::Origins;
use super::dry_run::{Trial, Verdicts};

/// Options of a merge.
#[derive(Clone, Debug)]
pub struct Rules<'a> {
    /// Which keys are data.
    pub keys: &'a KeySpace,
    /// Which side wins conflicts.
    pub policy: Policy,
    /// Which keys are merged.
    pub scope: &'a Scope,
    /// Whether the branch may fast-forward to their commit.
    pub fast_forward: bool,
    /// Kinds whose values are hidden in reports.
    pub secret_kinds: &'a SecretKinds,
    /// Results of dry runs; `None` if files get no dry run.
    pub verdicts: Option<&'a Verdicts>,
    /// Which commits count as gitcd's own.
    pub provenance: Provenance,
}

/// Which commits of theirs count as gitcd's own, whose files were accepted before and are not checked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// Those with a message of gitcd. Any client that can write the remote's branch can forge one.
    ByMessage,
    /// None: all were pushed by a client that may not push as a gitcd.
    External,
}

/// A rejected file of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// Its path in the tree.
    pub path: String,
    /// Why it is rejected.
    pub reason: String,
}

impl std::fmt::Display for Rejected {
    /// Cuts a very long path in its middle, because clients show one line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MOST: usize = 200;
        let (path, reason) = (&self.path, &self.reason);
        let (Some((start, _)), true) = (path.char_indices().nth(MOST / 2), path.len() > MOST) else {
            return write!(f, "{path}: {reason}");
        };
        let end = path.char_indices().rev().nth(MOST / 4).map_or(path.len(), |(at, _)| at.max(start));
        write!(f, "{}…{}: {reason}", &path[..start], &path[end..])
    }
}

/// A plan of a merge.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are facts about two commits, in any combination")]
pub struct Plan {
    /// The keys to change in the store.
    pub keys: Vec<Key>,
    /// The schemas of kinds.
    pub schemas: Schemas,
    /// Whether the branch can fast-forward to their commit.
    pub fast_forward: bool,
    /// Trailers for the merge commit.
    pub trailers: String,
    /// Rejected files.
    pub rejected: Vec<Rejected>,
    /// Objects that need a dry run before the plan is complete.
    pub trials: Vec<Trial>,
    /// Whether only the histories differ.
    pub same_tree: bool,
    /// Whether theirs has nothing new among the merged keys, while the trees differ in other keys for good. No history link is
    /// needed then; if both sides added one, each would merge the other's last merge for ever.
    pub nothing_new: bool,
    /// Whether their history contains ours.
    pub follows: bool,
}

/// Why a merge cannot be computed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A commit is missing or damaged.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A tree is missing or damaged.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A value is missing or damaged.
    #[error("blob {oid} of {key:?}: {problem}")]
    Blob {
        /// The blob.
        oid: Oid,
        /// The key whose value it is.
        key: String,
        /// What is wrong.
        problem: String,
    },
}

impl PlanError {
    /// Returns whether the history that is needed was cut by gitcd.
    pub fn is_cut(&self) -> bool {
        self.cut_at().is_some()
    }

    /// Returns the commit at which a walk ended because gitcd cut the history there.
    pub fn cut_at(&self) -> Option<Oid> {
        match self {
            Self::Graph(error) => error.cut_at(),
            _ => None,
        }
    }
}

/// A history link is added once ours has more commits than this that theirs lacks, even if theirs has nothing new: each of them
/// makes the search for merge bases slower.
const APART: usize = 1000;

/// Computes the merge of `theirs` into `ours`; `None` if ours contains it. A commit in our history is merged again if the merges
/// on the path to it left out keys that are accepted now.
///
/// # Errors
/// [`PlanError`].
pub fn plan(
    repository: &Repository,
    graph: &mut Graph,
    rules: &Rules<'_>,
    ours: Oid,
    theirs: Oid,
) -> Result<Option<Plan>, PlanError> {
    let meeting = graph.meeting(repository, ours, theirs)?;
    let contained = meeting.bases == [theirs];
    if contained && !may_have_left_out(rules.scope, &meeting) {
        return Ok(None);
    }
    let (our_commit, their_commit) = (graph.commit(repository, ours)?, graph.commit(repository, theirs)?);
    let odb = repository.odb().map_err(|error| GraphError::unreadable(theirs, error.message()))?;
    let follows = meeting.bases == [ours];
    let mut planner = Planner {
        repository,
        odb,
        graph,
        rules,
        ours,
        theirs,
        their_commit: (*their_commit).clone(),
        edits: Edits::default(),
        virtual_bases: HashMap::new(),
        meeting: meeting.clone(),
        schemas: Schemas::default(),
        is_kubernetes: false,
        keys: Vec::new(),
        rejected: Vec::new(),
        trials: Vec::new(),
        origins: Origins::new(rules.provenance),
        left_out: rules.scope.policy(),
        // Even if this merge leaves nothing out: a key that an earlier merge left out may be unchanged since then.
        is_partial: !rules.scope.is_everything(),
        brings: false,
        behind: HashMap::new(),
    };
    let may_differ = !rules.scope.is_everything() || !meeting.scopes.is_empty();
    let same_tree = our_commit.tree == their_commit.tree;
    // Even if the trees are equal, later edits may have replaced a value that both have.
    let may_be_neither = edits::may_matter(&meeting, ours);
    if !same_tree || may_differ || may_be_neither {
        planner.schemas = planner.schemas([our_commit.tree, their_commit.tree])?;
        planner.is_kubernetes = planner.holds_kubernetes([our_commit.tree, their_commit.tree])?;
        planner.run(our_commit.tree)?;
    }
    let Planner { keys, rejected, trials, left_out, is_partial, brings, schemas, .. } = planner;
    if contained && !brings {
        return Ok(None);
    }
    let nothing_new = !brings
        && rejected.is_empty()
        && (may_differ || is_partial)
        && !graph.missing(repository, ours, theirs, APART)?.more;
    let as_is = keys.iter().all(|key| key.as_is && key.outcome == Outcome::Theirs);
    Ok(Some(Plan {
        fast_forward: rules.fast_forward && follows && as_is && !is_partial,
        trailers: if is_partial { left_out.trailers(theirs) } else { String::new() },
        same_tree: same_tree && keys.is_empty(),
        keys,
        schemas,
        rejected,
        trials,
        nothing_new,
        follows,
    }))
}

struct Planner<'a, 'r> {
    repository: &'r Repository,
    odb: Odb<'r>,
    graph: &'a mut Graph,
    rules: &'a Rules<'a>,
    ours: Oid,
    theirs: Oid,
    their_commit: Commit,
    /// The merge bases, counting all edges.
    meeting: Arc<MergeBases>,
    /// Found only if a merge is among the commits that only one history has.
    edits: Edits,
    /// Cached results of [`Self::is_behind`].
    behind: HashMap<(Oid, Oid), bool>,
    /// Cached merges of bases for the current key, by commits and depth.
    virtual_bases: HashMap<(Vec<Oid>, usize), Base>,
    schemas: Schemas,
    /// Whether the store is a Kubernetes store, which accepts only Kubernetes objects.
    is_kubernetes: bool,
    keys: Vec<Key>,
    rejected: Vec<Rejected>,
    trials: Vec<Trial>,
    origins: Origins,
    /// Policy and keys that this merge leaves out.
    left_out: Scope,
    is_partial: bool,
    /// Whether theirs has changed any merged key.
    brings: bool,
}

impl Planner<'_, '_> {
    fn run(&mut self, our_tree: Oid) -> Result<(), PlanError> {
        let their_tree = self.their_commit.tree;
        let mut base_trees = Vec::new();
        for base in &self.meeting.bases {
            base_trees.push(self.graph.commit(self.repository, *base)?.tree);
        }
        let first = base_trees.first().copied();
        let mut theirs = changes::between(self.repository, first, Some(their_tree))?;
        for other in base_trees.iter().skip(1) {
            let more = changes::between(self.repository, Some(*other), Some(their_tree))?;
            for (relative, change) in more.keys {
                // A key that equals the first base has the same value there as in theirs.
                theirs.keys.entry(relative).or_insert(changes::Change { from: change.to, to: change.to });
            }
        }
        self.edited(&mut theirs)?;
        self.left_out_before(our_tree, &mut theirs)?;
        let keys = self.rules.keys;
        if theirs.strange.is_empty() && !theirs.keys.keys().any(|relative| self.is_taken(relative)) {
            // Our changes need not be read.
            for (relative, change) in &theirs.keys {
                let key = keys.absolute(relative);
                if keys.placement(&key) != Placement::Data {
                    self.of_one_server(relative, &key, change.to);
                }
            }
            self.rejected.sort_by(|one, other| one.path.cmp(&other.path));
            return Ok(());
        }
        let ours = changes::between(self.repository, first, Some(our_tree))?;
        for (path, reason) in std::mem::take(&mut theirs.strange) {
            self.reject(&path, None, reason);
        }
        let our_blob =
            |relative: &Vec<u8>, change: &changes::Change| ours.keys.get(relative).map_or(change.from, |ours| ours.to);
        for (relative, change) in &theirs.keys {
            self.key(relative, change.from, our_blob(relative, change), change.to)?;
        }
        // All in one search: separate ones would read the same commits again.
        for (relative, _) in self.origins.find(self.graph, self.repository, self.theirs) {
            let change = &theirs.keys[&relative];
            self.key(&relative, change.from, our_blob(&relative, change), change.to)?;
        }
        self.keys.sort_by(|one, other| one.key.cmp(&other.key));
        self.rejected.sort_by(|one, other| one.path.cmp(&other.path));
        self.namespaces(&ours)
    }

    fn failed(&self, error: &git2::Error) -> PlanError {
        GraphError::unreadable(self.theirs, error.message()).into()
    }
}

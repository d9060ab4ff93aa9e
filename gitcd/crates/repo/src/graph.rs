//! Ancestry: the merge bases of two commits.
//!
//! Source: Git's algorithm in `commit-reach.c` (`paint_down_to_common`), except that some edges do not count. A merge that left
//! keys out has the other branch as a parent without having those keys; for these keys its history does not include that parent
//! ([`gitcd_core::scope`]).
//!
//! A walk ends at the [boundary](crate::boundary) of a history that gitcd cut. If a merge base may be beyond it, that is an error,
//! never a merge without a base: the other side would bring back every key that was deleted meanwhile.

use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use git2::{Odb, Oid, Repository};

use gitcd_core::scope::Scope;

use self::ended::ParentView;
use super::boundary::Boundary;

mod cut;
mod edited;
mod ended;
mod error;
mod missing;
mod symmetric_difference;

pub use cut::CutPlan;
pub use edited::Edit;
pub use error::GraphError;
pub use missing::Missing;
pub use symmetric_difference::SymmetricDifference;

/// A commit, as far as ancestry needs it.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Its tree.
    pub tree: Oid,
    /// Its parents.
    pub parents: Vec<Oid>,
    /// Committer's time, in seconds since 1970.
    pub time: i64,
    /// The parent that was not merged whole, and the scope of the merge.
    pub partial: Option<(Oid, Arc<Scope>)>,
    /// Whether the history ends here although the commit has parents, which are not listed then.
    pub is_boundary: bool,
}

impl Commit {
    /// Returns whether the edge to a parent does not count, because the merge left keys out.
    fn leaves_out(&self, parent: Oid, left_out: &impl Fn(&Scope) -> bool) -> bool {
        self.partial.as_ref().is_some_and(|(of, scope)| *of == parent && left_out(scope))
    }
}

/// Counts all edges.
fn none_left_out(_: &Scope) -> bool {
    false
}

/// The commits read so far. Commits are immutable, so the graph may live as long as its repository. If the boundary of the history
/// moves, the next search for merge bases starts afresh.
#[derive(Debug, Default)]
pub struct Graph {
    boundary: Option<Boundary>,
    parents: ParentView,
    commits: HashMap<Oid, Arc<Commit>>,
    /// Merge bases of pairs that were computed.
    meetings: HashMap<(Oid, Oid), Arc<MergeBases>>,
    filtered: HashMap<(Oid, Oid), Vec<Filtered>>,
    edits: edited::Remembered,
    /// Number of commits that were read from the repository.
    #[cfg(test)]
    reads: usize,
}

/// Limit of cached commits. Tests have fewer, and exceed it nevertheless.
const REMEMBERED: usize = if cfg!(test) { 100 } else { 200_000 };
/// Limit of cached pairs.
const REMEMBERED_PAIRS: usize = 20_000;

const ONE: u8 = 1;
const OTHER: u8 = 2;
const STALE: u8 = 4;
const RESULT: u8 = 8;
const WALKED: u8 = 16;

/// The relation of two commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeBases {
    /// The best common ancestors, by ID; empty if the histories are unrelated.
    pub bases: Vec<Oid>,
    /// Scopes of partial merges that are in only one history, or were found on the way to the merge bases.
    pub scopes: Vec<Arc<Scope>>,
}

/// Merge bases for keys with the same decisions about partial merges.
#[derive(Clone, Debug)]
struct Filtered {
    decided: Vec<(Scope, bool)>,
    bases: Arc<[Oid]>,
}

impl Graph {
    /// Returns a graph whose commits have all parents that they name, also those beyond the boundary of the history.
    pub fn raw() -> Self {
        Self { parents: ParentView::All, ..Self::default() }
    }

    /// Returns a graph in which removed commits that are here again, as ancestors of what another branch sent, end the history like
    /// those on the boundary.
    pub fn lenient() -> Self {
        Self { parents: ParentView::Here, ..Self::default() }
    }

    /// Returns a commit.
    ///
    /// # Errors
    /// [`GraphError`] if it does not exist, is not a commit, or was removed when the history was cut.
    pub fn commit(&mut self, repository: &Repository, oid: Oid) -> Result<Arc<Commit>, GraphError> {
        if let Some(commit) = self.commits.get(&oid) {
            return Ok(commit.clone());
        }
        if self.commits.len() >= REMEMBERED {
            self.commits.clear();
        }
        #[cfg(test)]
        {
            self.reads += 1;
        }
        let odb = repository.odb().map_err(|error| GraphError::unreadable(oid, error.message()))?;
        let is_removed = self.check_removed(repository, oid)?;
        let mut commit = read(&odb, oid).map_err(|error| self.pruned_or(error, &odb, oid))?;
        self.end_at_boundary(oid, is_removed, &mut commit);
        let commit = Arc::new(commit);
        self.commits.insert(oid, commit.clone());
        Ok(commit)
    }

    /// Returns whether `ancestor` is `commit` or one of its ancestors.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn is_ancestor(&mut self, repository: &Repository, ancestor: Oid, commit: Oid) -> Result<bool, GraphError> {
        if ancestor == commit {
            return Ok(true);
        }
        match self.meet(repository, ancestor, commit, none_left_out) {
            Err(error) if error.is_cut() => self.is_kept_ancestor(repository, ancestor, commit, error),
            meeting => Ok(meeting?.bases == [ancestor]),
        }
    }

    /// Returns the merge bases of two commits, counting all edges, and caches them: a merge with several bases needs them for
    /// every key.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn meeting(&mut self, repository: &Repository, one: Oid, other: Oid) -> Result<Arc<MergeBases>, GraphError> {
        self.refresh(repository)?;
        let pair = (one.min(other), one.max(other));
        if let Some(meeting) = self.meetings.get(&pair) {
            return Ok(meeting.clone());
        }
        let meeting = Arc::new(self.meet(repository, pair.0, pair.1, none_left_out)?);
        if self.meetings.len() >= REMEMBERED_PAIRS {
            self.meetings.clear();
        }
        self.meetings.insert(pair, meeting.clone());
        Ok(meeting)
    }

    /// Returns the merge bases for a key, and caches them. An edge to a parent does not count if the merge left the key out, even
    /// below a common ancestor: both sides may have the key's history by other edges.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn bases_of_key(
        &mut self,
        repository: &Repository,
        one: Oid,
        other: Oid,
        key: &[u8],
    ) -> Result<Arc<[Oid]>, GraphError> {
        let pair = (one.min(other), one.max(other));
        let is_so = |known: &&Filtered| known.decided.iter().all(|(scope, skipped)| scope.covers(key) != *skipped);
        if let Some(known) = self.filtered.get(&pair).and_then(|all| all.iter().find(is_so)) {
            return Ok(known.bases.clone());
        }
        let decided: RefCell<Vec<(Scope, bool)>> = RefCell::default();
        let skip = |scope: &Scope| {
            let mut decided = decided.borrow_mut();
            if let Some((_, skipped)) = decided.iter().find(|(known, _)| known == scope) {
                return *skipped;
            }
            let skipped = !scope.covers(key);
            decided.push((scope.clone(), skipped));
            skipped
        };
        let bases: Arc<[Oid]> = self.meet(repository, pair.0, pair.1, skip)?.bases.into();
        if self.filtered.len() >= REMEMBERED_PAIRS {
            self.filtered.clear();
        }
        let decided = decided.into_inner();
        self.filtered.entry(pair).or_default().push(Filtered { decided, bases: bases.clone() });
        Ok(bases)
    }

    /// Returns the merge bases of two commits. An edge to a parent that was not merged whole does not count if `left_out` returns
    /// true for its scope. Reads the commits that are in one history only, and some more.
    ///
    /// # Errors
    /// [`GraphError`].
    pub fn meet(
        &mut self,
        repository: &Repository,
        one: Oid,
        other: Oid,
        left_out: impl Fn(&Scope) -> bool,
    ) -> Result<MergeBases, GraphError> {
        let left_out = &left_out;
        self.refresh(repository)?;
        if one == other {
            return Ok(MergeBases { bases: vec![one], scopes: Vec::new() });
        }
        let (found, flags) = self.paint(repository, [one, other], left_out)?;
        self.check_ends(&flags)?;
        if found.is_empty() {
            // They may appear to be unrelated only because one of them ends at the boundary.
            self.check_whole(&flags)?;
        }
        let mut bases: Vec<Oid> = found.into_iter().filter(|oid| flags[oid] & STALE == 0).collect();
        bases.sort();
        if bases.len() > 1 {
            bases = self.independent(repository, &bases, left_out)?;
        }
        let mut scopes: Vec<Arc<Scope>> = Vec::new();
        for (oid, flags) in &flags {
            if flags & WALKED != 0
                && let Some((_, scope)) = &self.commit(repository, *oid)?.partial
                && !scopes.contains(scope)
            {
                scopes.push(scope.clone());
            }
        }
        scopes.sort_by_key(|scope| scope.trailers(Oid::ZERO_SHA1));
        Ok(MergeBases { bases, scopes })
    }

    fn paint(
        &mut self,
        repository: &Repository,
        [one, other]: [Oid; 2],
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<(Vec<Oid>, HashMap<Oid, u8>), GraphError> {
        let mut flags: HashMap<Oid, u8> = HashMap::new();
        let mut queue: BinaryHeap<(i64, Oid)> = BinaryHeap::new();
        for (oid, flag) in [(one, ONE), (other, OTHER)] {
            flags.insert(oid, flag);
            queue.push((self.commit(repository, oid)?.time, oid));
        }
        // Number of queued commits that can still lead to a base.
        let mut fresh = 2_usize;
        let mut found = Vec::new();
        let mut waiting: HashMap<Oid, bool> = [(one, true), (other, true)].into();
        while fresh > 0 {
            let Some((_, oid)) = queue.pop() else { break };
            // Skip commits that were queued again with other flags.
            let Some(was_fresh) = waiting.remove(&oid) else { continue };
            fresh -= usize::from(was_fresh);
            let own = flags.get_mut(&oid).expect("what is queued has flags");
            *own |= WALKED;
            let mut painted = *own & (ONE | OTHER | STALE);
            if painted == ONE | OTHER {
                if *own & RESULT == 0 {
                    *own |= RESULT;
                    found.push(oid);
                }
                painted |= STALE;
            }
            let commit = self.commit(repository, oid)?;
            for parent in &commit.parents {
                if commit.leaves_out(*parent, left_out) {
                    continue;
                }
                let theirs = flags.entry(*parent).or_default();
                if *theirs & painted == painted {
                    continue;
                }
                *theirs |= painted;
                let is_fresh = *theirs & STALE == 0;
                fresh += usize::from(is_fresh);
                if let Some(before) = waiting.insert(*parent, is_fresh) {
                    fresh -= usize::from(before);
                } else {
                    queue.push((self.commit(repository, *parent)?.time, *parent));
                }
            }
        }
        self.share_ends(repository, [one, other], left_out, &mut flags)?;
        Ok((found, flags))
    }

    /// Drops bases that are ancestors of others, which clock skew can cause, and the boundary of the history can hide.
    fn independent(
        &mut self,
        repository: &Repository,
        bases: &[Oid],
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<Vec<Oid>, GraphError> {
        let mut kept = Vec::new();
        for base in bases {
            if !self.is_redundant(repository, *base, bases, left_out)? {
                kept.push(*base);
            }
        }
        Ok(kept)
    }

    fn is_redundant(
        &mut self,
        repository: &Repository,
        base: Oid,
        bases: &[Oid],
        left_out: &impl Fn(&Scope) -> bool,
    ) -> Result<bool, GraphError> {
        // First, because the order of two commits on the boundary may be unknown.
        for other in bases {
            if self.is_before_cut_of(repository, base, *other, left_out)? {
                return Ok(true);
            }
        }
        for other in bases.iter().filter(|other| **other != base) {
            let (found, flags) = self.paint(repository, [base, *other], left_out)?;
            self.check_before_ends(base, &flags)?;
            if found.contains(&base) && flags[&base] & STALE == 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn read(odb: &Odb<'_>, oid: Oid) -> Result<Commit, GraphError> {
    let problem = |problem: &str| GraphError::unreadable(oid, problem);
    let object = super::object::read(odb, oid).map_err(|error| problem(error.message()))?;
    if object.kind() != git2::ObjectType::Commit {
        return Err(problem("it is not a commit"));
    }
    parse(object.data()).ok_or_else(|| problem("it is malformed"))
}

/// Parses a commit; `None` if it is malformed.
pub fn parse(data: &[u8]) -> Option<Commit> {
    let end = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let mut lines = data[..end].split(|byte| *byte == b'\n');
    let id = |line: &[u8], name: &[u8]| Oid::from_str(std::str::from_utf8(line.strip_prefix(name)?).ok()?).ok();
    let tree = id(lines.next()?, b"tree ")?;
    let mut parents = Vec::new();
    let mut time = 0;
    for line in lines {
        if let Some(parent) = id(line, b"parent ") {
            parents.push(parent);
        } else if line.starts_with(b"committer ") {
            // `committer Name <address> seconds +zone`
            let mut fields = line.rsplit(|byte| *byte == b' ').skip(1);
            time = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        }
    }
    let message = data.get(end + 2..).unwrap_or_default();
    let partial = if parents.len() > 1 { Scope::parse(message) } else { None };
    let partial = partial.filter(|(of, _)| parents.contains(of)).map(|(of, scope)| (of, Arc::new(scope)));
    Some(Commit { tree, parents, time, partial, is_boundary: false })
}

#[cfg(test)]
mod tests {
    use git2::{Repository, Signature, Time};
    use proptest::prelude::*;

    use super::*;

    fn commit(repository: &Repository, parents: &[Oid], time: i64, message: &str) -> Oid {
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
        let parents: Vec<_> = parents.iter().map(|parent| repository.find_commit(*parent).unwrap()).collect();
        let parents: Vec<_> = parents.iter().collect();
        repository.commit(None, &author, &author, message, &tree, &parents).unwrap()
    }

    fn leading_to(repository: &Repository, oid: Oid) -> std::collections::BTreeSet<Oid> {
        let (mut found, mut next) = (std::collections::BTreeSet::new(), vec![oid]);
        while let Some(oid) = next.pop() {
            if found.insert(oid) {
                next.extend(repository.find_commit(oid).unwrap().parent_ids());
            }
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn bases_are_those_of_git_whatever_the_clocks_say(
            commits in proptest::collection::vec((0..6_i64, proptest::collection::vec(any::<prop::sample::Index>(), 0..3)), 2..14),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let repository = Repository::init_bare(folder.path()).unwrap();
            let mut all: Vec<Oid> = Vec::new();
            for (number, (time, parents)) in commits.iter().enumerate() {
                let mut chosen: Vec<Oid> = if all.is_empty() { Vec::new() } else { parents.iter().map(|parent| *parent.get(&all)).collect() };
                chosen.sort();
                chosen.dedup();
                all.push(commit(&repository, &chosen, 1000 + time, &number.to_string()));
            }
            let mut graph = Graph::default();
            for one in &all {
                for other in &all {
                    let found = graph.meet(&repository, *one, *other, |_| false).unwrap().bases;
                    let mut expected: Vec<Oid> = repository.merge_bases(*one, *other).map(|bases| bases.to_vec()).unwrap_or_default();
                    expected.sort();
                    prop_assert_eq!(&found, &expected);
                    let is_ancestor = one == other || repository.graph_descendant_of(*other, *one).unwrap();
                    prop_assert_eq!(graph.is_ancestor(&repository, *one, *other).unwrap(), is_ancestor);
                    let missing = graph.missing(&repository, *one, *other, 1000).unwrap();
                    // Computed here, since `git rev-list` miscounts with clock skew.
                    let theirs = leading_to(&repository, *one);
                    let theirs: Vec<_> = theirs.difference(&leading_to(&repository, *other)).copied().collect();
                    let oldest = theirs.iter().map(|oid| repository.find_commit(*oid).unwrap().time().seconds()).min();
                    prop_assert_eq!(missing, Missing { commits: theirs.len(), more: false, oldest });
                    let ours = leading_to(&repository, *other);
                    let ours: Vec<_> = ours.difference(&leading_to(&repository, *one)).copied().collect();
                    let apart = graph.apart(&repository, *one, *other, 1000).unwrap();
                    // Clock skew may yield more of them than there are.
                    let apart = apart.expect("there are fewer");
                    let has = |all: &[Oid], some: &[Oid]| some.iter().all(|oid| all.contains(oid));
                    prop_assert!(has(&apart.one, &theirs) && has(&apart.other, &ours), "{apart:?}");
                    prop_assert_eq!(graph.apart(&repository, *one, *other, 0).unwrap().is_none(), one != other);
                }
            }
        }
    }

    #[test]
    fn what_is_missing_is_counted_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let mut heads = vec![commit(&repository, &[], 1, "root")];
        for time in 2..13 {
            heads.push(commit(&repository, &[heads[heads.len() - 1]], time, "more"));
        }
        let mut graph = Graph::default();
        let mut missing = |theirs: usize, ours: usize, limit: usize| {
            graph.missing(&repository, heads[theirs], heads[ours], limit).unwrap()
        };
        assert_eq!(missing(11, 1, 100), Missing { commits: 10, more: false, oldest: Some(3) });
        assert_eq!(missing(11, 1, 10), Missing { commits: 10, more: false, oldest: Some(3) });
        let some = missing(11, 1, 4);
        assert_eq!((some.commits, some.more), (4, true));
        assert_eq!(missing(1, 11, 4), Missing::default());
    }

    #[test]
    fn an_edge_that_left_keys_out_does_not_count_for_them() {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let whole = commit(&repository, &[], 1, "whole");
        let part = commit(&repository, &[], 1, "part");
        let scope = Scope::new("^/pods/", "").unwrap();
        let message = format!("merge\n\n{}", scope.trailers(whole));
        let merged = commit(&repository, &[part, whole], 2, &message);
        let whole = commit(&repository, &[whole], 3, "more");
        let mut graph = Graph::default();
        let meeting = graph.meet(&repository, whole, merged, |_| false).unwrap();
        assert_eq!(meeting.scopes.len(), 1);
        assert_eq!(meeting.bases.len(), 1);
        let for_pod = graph.meet(&repository, whole, merged, |scope| !scope.covers(b"/pods/a")).unwrap();
        assert_eq!(for_pod.bases, meeting.bases);
        let for_secret = graph.meet(&repository, whole, merged, |scope| !scope.covers(b"/secrets/a")).unwrap();
        assert!(for_secret.bases.is_empty());
    }
}

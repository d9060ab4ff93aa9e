use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use git2::{Oid, Repository, Signature, Time};
use gitcd_core::scope::Scope;
use proptest::prelude::*;

use super::super::{Missing, REMEMBERED};
use super::CutPlan;
use crate::boundary::{Boundary, Cut};
use crate::graph::{Graph, GraphError};

mod restored;

fn commit(repository: &Repository, parents: &[Oid], time: i64, message: &str) -> Oid {
    let tree = repository.treebuilder(None).unwrap().write().unwrap();
    let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
    let lines = parents.iter().fold(String::new(), |lines, parent| lines + &format!("parent {parent}\n"));
    let who = format!("{} <{}> {time} +0000", author.name().unwrap(), author.email().unwrap());
    // Written as it is: libgit2 would look for the parents.
    let text = format!("tree {tree}\n{lines}author {who}\ncommitter {who}\n\n{message}");
    repository.odb().unwrap().write(git2::ObjectType::Commit, text.as_bytes()).unwrap()
}

fn record(data: Oid) -> Cut {
    Cut { reference: "refs/heads/main".into(), revision: 1, data, at: 0, archive: String::new() }
}

/// Plans a cut, and records it, as if gitcd were killed then.
fn begin(repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> CutPlan {
    let plan = Graph::lenient().plan_cut(repository, oldest, tips).unwrap();
    plan.record(repository.path(), &record(oldest[0])).unwrap();
    plan
}

/// Cuts the history, as `gitcd retain` does.
fn cut(repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> CutPlan {
    let plan = begin(repository, oldest, tips);
    plan.apply(repository.path()).unwrap();
    plan
}

/// The keys that partial merges leave out, or not.
const KEYS: [&[u8]; 2] = [b"/pods/a", b"/secrets/a"];

/// A commit of a random history.
#[derive(Clone, Debug)]
struct Node {
    /// How much its clock is fast.
    fast: i64,
    parents: Vec<prop::sample::Index>,
    /// Whether its last parent, of several, was merged for some keys only, and for which.
    partial: Option<bool>,
}

fn histories() -> impl Strategy<Value = Vec<Node>> {
    let parents = proptest::collection::vec(any::<prop::sample::Index>(), 1..3);
    let commit = (0..40_i64, parents, prop::option::of(any::<bool>()));
    proptest::collection::vec(commit.prop_map(|(fast, parents, partial)| Node { fast, parents, partial }), 4..14)
}

/// Builds a history in which most parents are recent.
fn build(repository: &Repository, commits: &[Node], skew: i64) -> Vec<Oid> {
    let mut all: Vec<Oid> = Vec::new();
    for (number, Node { fast, parents, partial }) in commits.iter().enumerate() {
        let recent = &all[all.len().saturating_sub(5)..];
        let mut chosen: Vec<Oid> =
            parents.iter().filter(|_| !recent.is_empty()).map(|parent| *parent.get(recent)).collect();
        chosen.sort();
        chosen.dedup();
        let time = 1000 + number as i64 * 10 + fast * skew;
        all.push(commit(repository, &chosen, time, &message(number, &chosen, *partial)));
    }
    all
}

/// Returns a message with the scope of a merge, if it is a partial one.
fn message(number: usize, parents: &[Oid], partial: Option<bool>) -> String {
    let scope = partial.map(|of_pods| Scope::new(if of_pods { "^/pods/" } else { "^/secrets/" }, "").unwrap());
    match (parents, scope) {
        ([_, .., last], Some(scope)) => format!("{number}\n\n{}", scope.trailers(last)),
        _ => number.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Also after a second cut, and with commits that build on removed ones, as a branch sends them that lags behind: these are
    /// removed commits that end the walk, and some of them are restored.
    #[test]
    fn a_walk_in_a_cut_history_is_that_in_the_whole_one_or_an_explicit_error(
        commits in histories(),
        at in any::<prop::sample::Index>(),
        tips in proptest::collection::vec(any::<prop::sample::Index>(), 1..3),
        later in proptest::collection::vec(
            (proptest::collection::vec(any::<prop::sample::Index>(), 1..3), prop::option::of(any::<bool>())),
            0..4,
        ),
        skew in 0..6_i64,
        again in any::<prop::sample::Index>(),
        restored in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let mut all = build(&repository, &commits, skew);
        let tips: Vec<Oid> = tips.iter().map(|tip| *tip.get(&all)).collect();
        for (number, (parents, partial)) in later.iter().enumerate() {
            let mut parents: Vec<Oid> = parents.iter().map(|parent| *parent.get(&all)).collect();
            parents.dedup();
            let message = message(1000 + number, &parents, *partial);
            all.push(commit(&repository, &parents, 2000 + number as i64, &message));
        }
        let whole = walks(&mut Graph::default(), &repository, &all);
        // A graph that is used before, between and after the cuts.
        let mut graph = Graph::default();
        let mut oldest = *at.get(&all[..commits.len()]);
        for number in 0..2 {
            let before = walks(&mut graph, &repository, &all);
            let plan = begin(&repository, &[oldest], &tips);
            if plan.removed.is_empty() {
                // Nothing is beyond a root.
                return Ok(());
            }
            let what = format!("cut {number} before {oldest}");
            for (before, now) in before.iter().zip(&walks(&mut Graph::default(), &repository, &all)) {
                prop_assert_eq!(&before.bases, &now.bases, "a cut that was only recorded changes nothing: {}", what);
                prop_assert_eq!(&before.of_keys, &now.of_keys, "nor for one key: {}", what);
            }
            plan.apply(repository.path()).unwrap();
            check(&whole, &walks(&mut graph, &repository, &all), skew, &what)?;
            check_success(&repository, &all, &walks(&mut graph, &repository, &all), skew, &what)?;
            let removed: Vec<Oid> = plan.removed.iter().copied().collect();
            let some: Vec<Oid> = restored.iter().map(|index| *index.get(&removed)).collect();
            Boundary::restore(repository.path(), &some).unwrap();
            check(&whole, &walks(&mut graph, &repository, &all), skew, &format!("{what}, restored {some:?}"))?;
            let visible = Graph::lenient().ancestors(&repository, &tips, &HashSet::new()).unwrap();
            let visible: BTreeSet<Oid> = visible.into_iter().collect();
            let visible: Vec<Oid> = visible.into_iter().collect();
            oldest = *again.get(&visible);
        }
    }
}

/// What walks of two commits return; nothing if they fail because the history was cut.
#[derive(Debug)]
struct Walks {
    of: [Oid; 2],
    bases: Option<Vec<Oid>>,
    /// The merge bases for each of the [keys](KEYS).
    of_keys: [Option<Vec<Oid>>; 2],
    is_ancestor: Option<bool>,
    apart: Option<[Vec<Oid>; 2]>,
    missing: Option<Missing>,
}

fn uncut<T>(walked: Result<T, GraphError>) -> Option<T> {
    match walked {
        Err(error) if error.is_cut() => None,
        walked => Some(walked.unwrap()),
    }
}

fn walks(graph: &mut Graph, repository: &Repository, all: &[Oid]) -> Vec<Walks> {
    let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
    let walked = pairs.map(|(one, other)| Walks {
        of: [one, other],
        bases: uncut(graph.meeting(repository, one, other)).map(|meeting| meeting.bases.clone()),
        of_keys: KEYS.map(|key| uncut(graph.bases_of_key(repository, one, other, key)).map(|bases| bases.to_vec())),
        is_ancestor: uncut(graph.is_ancestor(repository, one, other)),
        apart: uncut(graph.apart(repository, one, other, 1000)).map(|apart| {
            let apart = apart.expect("there are fewer");
            [apart.one, apart.other]
        }),
        missing: uncut(graph.missing(repository, one, other, 1000)),
    });
    walked.collect()
}

fn check(whole: &[Walks], now: &[Walks], skew: i64, what: &str) -> Result<(), TestCaseError> {
    for (whole, now) in whole.iter().zip(now) {
        let what = format!("{:?} after {what}", now.of);
        prop_assert!(now.bases.is_none() || now.bases == whole.bases, "{}: {:?} {:?}", what, now, whole);
        for (now, whole) in now.of_keys.iter().zip(&whole.of_keys) {
            prop_assert!(now.is_none() || now == whole, "for a key: {}: {:?} {:?}", what, now, whole);
        }
        prop_assert!(now.is_ancestor.is_none() || now.is_ancestor == whole.is_ancestor, "{}", what);
        // Clock skew may yield more of them than there are.
        prop_assert!(skew > 0 || now.apart.is_none() || now.apart == whole.apart, "{}: {:?} {:?}", what, now, whole);
        if let (Some(now), Some(whole)) = (now.missing, whole.missing) {
            prop_assert!(now == whole || now.more && now.commits <= whole.commits, "{}: {:?} {:?}", what, now, whole);
        }
    }
    Ok(())
}

/// Returns the scopes of the partial merges of two histories.
fn scopes(graph: &mut Graph, repository: &Repository, tips: [Oid; 2]) -> Vec<Arc<Scope>> {
    let mut found = Vec::new();
    for oid in graph.ancestors(repository, &tips, &HashSet::new()).unwrap() {
        let commit = graph.commit(repository, oid).unwrap();
        found.extend(commit.partial.as_ref().map(|(_, scope)| scope.clone()));
    }
    found
}

/// Returns the ends of a history on the boundary; nothing if it has removed commits.
fn ends(repository: &Repository, tip: Oid) -> Option<BTreeSet<Oid>> {
    let boundary = Boundary::read(repository.path()).unwrap();
    let history = Graph::lenient().ancestors(repository, &[tip], &HashSet::new()).unwrap();
    let is_whole = history.iter().all(|oid| !boundary.removed(*oid).unwrap());
    is_whole.then(|| history.into_iter().filter(|oid| boundary.has(*oid)).collect())
}

/// Walks of two histories must not fail if one of them ends only where the other one does, too: at one commit, or at the cut and before
/// it. The order of other ends may be unknown.
fn check_success(
    repository: &Repository,
    all: &[Oid],
    now: &[Walks],
    skew: i64,
    what: &str,
) -> Result<(), TestCaseError> {
    let ends: Vec<(Oid, Option<BTreeSet<Oid>>)> = all.iter().map(|oid| (*oid, ends(repository, *oid))).collect();
    let boundary = Boundary::read(repository.path()).unwrap();
    let are_before = |ends: &BTreeSet<Oid>, (number, cut): (usize, &Cut)| {
        let is_known = |oid: &Oid| *oid == cut.data || boundary.is_before_cut(number, *oid).unwrap();
        ends.contains(&cut.data) && ends.iter().all(is_known)
    };
    let is_ordered =
        |ends: &BTreeSet<Oid>| ends.len() == 1 || boundary.cuts().iter().enumerate().any(|cut| are_before(ends, cut));
    let mut graph = Graph::lenient();
    let of = |oid: Oid| ends.iter().find(|(of, _)| *of == oid).and_then(|(_, ends)| ends.as_ref());
    for walks in now.iter().filter(|_| skew == 0) {
        let [Some(one), Some(other)] = walks.of.map(of) else { continue };
        let is_within = |one: &BTreeSet<Oid>, other: &BTreeSet<Oid>| is_ordered(one) && one.is_subset(other);
        if is_within(one, other) || is_within(other, one) {
            prop_assert!(walks.bases.is_some() && walks.is_ancestor.is_some(), "{}: {:?}", what, walks);
            let scopes = scopes(&mut graph, repository, walks.of);
            for (key, bases) in KEYS.into_iter().zip(&walks.of_keys) {
                let mut all = scopes.iter().map(|scope| &**scope).chain(boundary.scopes());
                let is_left_out = all.any(|scope| !scope.covers(key));
                prop_assert!(is_left_out || bases.is_some(), "for a key: {}: {:?}", what, walks);
            }
        }
        if one == other {
            prop_assert!(walks.apart.is_some() && walks.missing.is_some(), "{}: {:?}", what, walks);
        }
    }
    Ok(())
}

#[test]
fn what_a_merge_reads_stays_if_the_cut_is_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let mut line = vec![commit(&repository, &[], 1, "root")];
    for time in 2..10 {
        line.push(commit(&repository, &[line[line.len() - 1]], time, "more"));
    }
    let side = commit(&repository, &[line[4]], 20, "side");
    let tip = commit(&repository, &[line[8]], 30, "tip");
    let mut graph = Graph::default();
    let read = graph.read_by_merge(&repository, tip, side, 100).unwrap();
    assert!(read.contains(&line[4]) && !read.contains(&line[2]));
    let plan = cut(&repository, &[line[4]], &[tip, side]);
    assert_eq!(plan.removed, line[..4].iter().copied().collect());
    assert_eq!(graph.meet(&repository, tip, side, |_| false).unwrap().bases, [line[4]]);
    cut(&repository, &[line[6]], &[tip, side]);
    let error = graph.meet(&repository, tip, side, |_| false).unwrap_err();
    assert!(error.to_string().contains("clone the other branch again"), "{error}");
}

/// A third branch in a ring continues from a removed commit, and merges this branch. So do we: then both have merges that the other one
/// lacks, and the removed commit is an end of one history only.
#[test]
fn a_branch_that_continues_from_a_restored_commit_is_compared_if_both_have_the_cut() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let mut line = vec![commit(&repository, &[], 1, "root")];
    for time in 2..10 {
        line.push(commit(&repository, &[line[line.len() - 1]], time, "more"));
    }
    let (old, oldest, tip) = (line[3], line[6], line[8]);
    let lagging = commit(&repository, &[old], 20, "of the idle branch");
    let theirs = commit(&repository, &[lagging, tip], 30, "their merge");
    let ours = commit(&repository, &[tip], 31, "our own write");
    let unrelated = commit(&repository, &[lagging], 32, "without the cut");
    let mut graph = Graph::default();
    let whole = graph.apart(&repository, ours, theirs, 100).unwrap().unwrap();
    assert_eq!((whole.one.len(), whole.other.len()), (1, 2));
    cut(&repository, &[oldest], &[tip]);
    assert!(graph.apart(&repository, ours, theirs, 100).unwrap_err().is_cut());
    Boundary::restore(repository.path(), &[old]).unwrap();
    assert_eq!(graph.apart(&repository, ours, theirs, 100).unwrap().unwrap(), whole);
    assert_eq!(graph.meeting(&repository, ours, theirs).unwrap().bases, [tip]);
    assert_eq!(graph.missing(&repository, theirs, ours, 100).unwrap().commits, 2);
    // It does not have the cut, so a common ancestor may be beyond.
    assert!(graph.meeting(&repository, ours, unrelated).unwrap_err().is_cut());
}

/// As before there were cuts: the parents that commits name are read, and one that is missing is an error.
#[test]
fn a_clone_with_a_limited_depth_is_read_as_its_objects_are() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let root = commit(&repository, &[], 1, "root");
    let [one, other] = ["one", "other"].map(|name| commit(&repository, &[root], 2, name));
    let missing = Oid::from_str(&"a".repeat(40)).unwrap();
    let cut_off = commit(&repository, &[missing], 3, "its parent is not here");
    std::fs::write(folder.path().join("shallow"), format!("{one}\n{cut_off}\n")).unwrap();
    let mut graph = Graph::default();
    assert_eq!(graph.meet(&repository, one, other, |_| false).unwrap().bases, [root]);
    assert_eq!(graph.commit(&repository, one).unwrap().parents, [root]);
    let error = graph.meet(&repository, one, cut_off, |_| false).unwrap_err();
    assert!(matches!(error, GraphError::Unreadable { oid, .. } if oid == missing), "{error}");
    assert!(!graph.is_cut());
}

/// Branches merge each other at the same time, after a cut beyond which a side of a merge goes on.
#[test]
fn several_merge_bases_are_found_although_each_ends_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let at = |parents: &[Oid], time: i64| commit(&repository, parents, time, &time.to_string());
    let root = at(&[], 1);
    let [side, own] = [2, 3].map(|time| at(&[root], time));
    let oldest = at(&[own, side], 4);
    let [one, other] = [at(&[oldest], 5), at(&[side], 6)];
    let [ours, theirs] = [at(&[one, other], 7), at(&[other, one], 8)];
    // Both continue from the side, and from the cut, with nothing else in common.
    let [more_one, more_other] = [at(&[oldest], 9), at(&[side], 10)];
    let apart = at(&[more_other, more_one], 11);
    let mut graph = Graph::default();
    let mut bases = |one: Oid, other: Oid| graph.meeting(&repository, one, other).unwrap().bases.clone();
    let whole = [bases(ours, theirs), bases(ours, apart), bases(theirs, apart)];
    assert_eq!((whole[0].len(), &whole[1]), (2, &vec![oldest]));
    let plan = cut(&repository, &[oldest], &[ours, theirs, apart]);
    assert_eq!(plan.boundary, [oldest, side].into());
    assert_eq!([bases(ours, theirs), bases(ours, apart), bases(theirs, apart)], whole);
    // One merge base is the cut, and the other one continues from the side.
    let [one_more, other_more] = [at(&[other, more_one], 12), at(&[one, other], 13)];
    let mut expected = vec![oldest, other];
    expected.sort();
    assert_eq!(bases(one_more, other_more), expected);
    // A branch that has the cut has its side as well, also if that is not visible.
    let without = at(&[one], 14);
    let found = Graph::default().apart(&repository, without, apart, 100).unwrap().unwrap();
    assert_eq!((found.one.len(), found.other.len()), (2, 3));
}

/// The graph forgets commits when it has read very many.
#[test]
fn a_plan_for_more_commits_than_the_graph_remembers_reads_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let mut line = vec![commit(&repository, &[], 1, "root")];
    // A side line of one commit, all the time.
    let count = REMEMBERED * 5;
    let mut all = vec![line[0]];
    for time in 2..count as i64 {
        let last = line[line.len() - 1];
        let side = commit(&repository, &[last], time, &format!("side {time}"));
        line.push(commit(&repository, &[last, side], time, &format!("merge {time}")));
        all.extend([side, line[line.len() - 1]]);
    }
    for at in [REMEMBERED / 2, count / 2, line.len() - 2] {
        let mut graph = Graph::lenient();
        let tip = line[line.len() - 1];
        let plan = graph.plan_cut(&repository, &[line[at]], &[tip, tip]).unwrap();
        assert_eq!(graph.reads, all.len(), "each commit is read once");
        assert_eq!((plan.boundary, plan.older.commits.len()), ([line[at]].into(), at * 2 + 1));
        assert_eq!(plan.removed, all[..at * 2].iter().copied().collect());
    }
}

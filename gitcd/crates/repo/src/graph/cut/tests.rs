use std::collections::{BTreeSet, HashSet};

use git2::{Oid, Repository, Signature, Time};
use proptest::prelude::*;

use super::CutPlan;
use crate::boundary::{Boundary, Cut};
use crate::graph::{Graph, GraphError};

fn commit(repository: &Repository, parents: &[Oid], time: i64, message: &str) -> Oid {
    let tree = repository.treebuilder(None).unwrap().write().unwrap();
    let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
    let lines = parents.iter().fold(String::new(), |lines, parent| lines + &format!("parent {parent}\n"));
    let who = format!("{} <{}> {time} +0000", author.name().unwrap(), author.email().unwrap());
    // Written as it is: libgit2 would look for the parents.
    let text = format!("tree {tree}\n{lines}author {who}\ncommitter {who}\n\n{message}");
    repository.odb().unwrap().write(git2::ObjectType::Commit, text.as_bytes()).unwrap()
}

/// Cuts the history, as `gitcd retain` does.
fn cut(repository: &Repository, oldest: &[Oid], tips: &[Oid]) -> CutPlan {
    let plan = Graph::default().plan_cut(repository, oldest, tips).unwrap();
    let record = Cut {
        reference: "refs/heads/main".into(),
        revision: 1,
        at: 0,
        archive: String::new(),
        boundary: plan.boundary.clone(),
    };
    let removed: Vec<Oid> = plan.removed.iter().copied().collect();
    Boundary::record(repository.path(), &record, &removed).unwrap();
    Boundary::read(repository.path()).unwrap().replace(repository.path(), &plan.boundary).unwrap();
    plan
}

fn histories() -> impl Strategy<Value = Vec<(i64, Vec<prop::sample::Index>)>> {
    let commit = (0..40_i64, proptest::collection::vec(any::<prop::sample::Index>(), 1..3));
    proptest::collection::vec(commit, 4..22)
}

/// Builds a history in which most parents are recent.
fn build(repository: &Repository, commits: &[(i64, Vec<prop::sample::Index>)], skew: i64) -> Vec<Oid> {
    let mut all: Vec<Oid> = Vec::new();
    for (number, (time, parents)) in commits.iter().enumerate() {
        let recent = &all[all.len().saturating_sub(5)..];
        let mut chosen: Vec<Oid> =
            parents.iter().filter(|_| !recent.is_empty()).map(|parent| *parent.get(recent)).collect();
        chosen.sort();
        chosen.dedup();
        let time = 1000 + number as i64 * 10 + time * skew;
        all.push(commit(repository, &chosen, time, &number.to_string()));
    }
    all
}

fn same_or_cut<T: PartialEq + std::fmt::Debug>(whole: &Result<T, GraphError>, now: &Result<T, GraphError>, what: &str) {
    match (whole, now) {
        (_, Err(error)) => assert!(error.is_cut(), "{what}: {error}"),
        (Ok(whole), Ok(now)) => assert_eq!(whole, now, "{what}"),
        (Err(error), _) => panic!("{what}: {error}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Also with commits that build on removed ones, as a branch sends them that lags behind.
    #[test]
    fn a_walk_in_a_cut_history_is_that_in_the_whole_one_or_an_explicit_error(
        commits in histories(),
        at in any::<prop::sample::Index>(),
        tips in proptest::collection::vec(any::<prop::sample::Index>(), 1..3),
        later in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 1..3), 0..6),
        skew in 0..6_i64,
        again in any::<prop::sample::Index>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let mut all = build(&repository, &commits, skew);
        let mut tips: Vec<Oid> = tips.iter().map(|tip| *tip.get(&all)).collect();
        let whole = |graph: &mut Graph, all: &[Oid]| {
            let pairs = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other)));
            pairs.map(|(one, other)| {
                (one, other, graph.meet(&repository, one, other, |_| false), graph.is_ancestor(&repository, one, other),
                    graph.apart(&repository, one, other, 1000).map(|found| found.map(|found| (found.one, found.other))))
            }).collect::<Vec<_>>()
        };
        for (number, parents) in later.iter().enumerate() {
            let mut parents: Vec<Oid> = parents.iter().map(|parent| *parent.get(&all)).collect();
            parents.dedup();
            all.push(commit(&repository, &parents, 2000 + number as i64, &format!("later {number}")));
        }
        let before = whole(&mut Graph::default(), &all);
        let mut graph = Graph::default();
        // The graph that was used before the cut, and once more after a second one.
        graph.meet(&repository, all[0], all[all.len() - 1], |_| false).unwrap();
        let mut oldest = *at.get(&all[..commits.len()]);
        for _ in 0..2 {
            let plan = cut(&repository, &[oldest], &tips);
            if plan.removed.is_empty() {
                // Nothing is beyond a root.
                std::fs::remove_file(folder.path().join("shallow")).unwrap();
                return Ok(());
            }
            let after = whole(&mut graph, &all);
            for ((one, other, bases, is_ancestor, apart), (_, _, bases_now, is_ancestor_now, apart_now)) in before.iter().zip(&after) {
                let what = format!("{one} and {other} without what is before {oldest}");
                let of = |bases: &Result<crate::graph::MergeBases, GraphError>| match bases {
                    Ok(bases) => Ok(bases.bases.clone()),
                    Err(error) => Err(GraphError::unreadable(*one, error.to_string())),
                };
                match bases_now {
                    Ok(now) => prop_assert_eq!(&of(bases).unwrap(), &now.bases, "{}", what),
                    Err(error) => prop_assert!(error.is_cut(), "{}: {}", what, error),
                }
                same_or_cut(is_ancestor, is_ancestor_now, &what);
                if let (Ok(Some((one, other))), Ok(Some((one_now, other_now)))) = (apart, apart_now) {
                    // Clock skew may yield more of them than there are.
                    prop_assert!(skew > 0 || (one == one_now && other == other_now), "{}", what);
                } else {
                    same_or_cut(apart, apart_now, &what);
                }
            }
            // What a merge of the references reads is there, unless the cut is after it.
            let removed: HashSet<Oid> = plan.removed.iter().chain(&plan.boundary).copied().collect();
            let mut old = Graph::default();
            if tips.iter().any(|tip| removed.contains(tip)) || old.ancestors(&repository, &tips, &HashSet::new()).is_err() {
                return Ok(());
            }
            let visible: BTreeSet<Oid> = old.ancestors(&repository, &tips, &HashSet::new()).unwrap().into_iter().collect();
            let visible: Vec<Oid> = visible.into_iter().collect();
            oldest = *again.get(&visible);
            tips.sort();
        }
    }
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
    assert_eq!(plan.newest_removed, [line[3]].into());
    assert_eq!(graph.meet(&repository, tip, side, |_| false).unwrap().bases, [line[4]]);
    cut(&repository, &[line[6]], &[tip, side]);
    let error = graph.meet(&repository, tip, side, |_| false).unwrap_err();
    assert!(error.to_string().contains("clone the other branch again"), "{error}");
}

#[test]
fn a_clone_with_a_limited_depth_fails_if_one_side_ends() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init_bare(folder.path()).unwrap();
    let root = commit(&repository, &[], 1, "root");
    let [one, other] = ["one", "other"].map(|name| commit(&repository, &[root], 2, name));
    let mut graph = Graph::default();
    assert_eq!(graph.meet(&repository, one, other, |_| false).unwrap().bases, [root]);
    std::fs::write(folder.path().join("shallow"), format!("{one}\n")).unwrap();
    let error = graph.meet(&repository, one, other, |_| false).unwrap_err();
    assert!(matches!(error, GraphError::Shallow { .. }), "{error}");
}

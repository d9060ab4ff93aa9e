//! Commits by their IDs, in the order of the history.

use git2::Oid;
use gitcd_history::find::{FindCommitError, MergeSides};
use gitcd_merge::Policy;

use crate::merges::{Graph, map};

const MAP: &str = "/registry/configmaps/n/a";

/// Each commit is older by its clock than the one that it follows.
#[test]
fn named_commits_are_ordered_by_history_whatever_the_clocks_say() {
    let mut graph = Graph::new(MAP, map, r#""x":"0""#);
    let value = |x: usize| map(&format!(r#""x":"{x}""#));
    let chain = |graph: &Graph, start: Oid, key: &str, time: i64| {
        let mut commits: Vec<Oid> = Vec::new();
        for number in 1..4 {
            let parent = commits.last().copied().unwrap_or(start);
            let value = value(number);
            let time = time - 1000 * i64::try_from(number).expect("it is small");
            commits.push(graph.world.commit_at(time, &[parent], &[(key, Some(value.as_bytes()))], ""));
        }
        commits
    };
    let other = "/registry/configmaps/n/b";
    let own = chain(&graph, graph.base, MAP, 1_700_000_000);
    // The clock of the other branch is years ahead.
    let theirs = chain(&graph, graph.base, other, 1_900_000_000);
    let after = value(3);
    let merge = graph.world.commit_at(1_600_000_000, &[own[2], theirs[2]], &[(other, Some(after.as_bytes()))], "");
    let later = value(9);
    let last = graph.world.commit_at(1_500_000_000, &[merge], &[(MAP, Some(later.as_bytes()))], "");
    graph.world.merge(0, last, Policy::Later, &[MAP, other], true);

    let history = graph.world.history(0);
    let named = [own[1], theirs[0], last, theirs[2], own[0], own[1], merge, theirs[1], own[2]];
    let ids: Vec<String> = named.iter().map(|oid| oid.to_string()[..12].to_owned()).collect();
    let found = history.find_commits(&ids).expect("the branch has them");
    let order: Vec<Oid> = found.iter().map(|found| found.commit.commit.oid).collect();
    assert_eq!(order, [last, merge, theirs[2], theirs[1], theirs[0], own[2], own[1], own[0]]);
    let merges: Vec<Option<Oid>> =
        found.iter().map(|found| found.merge.as_ref().map(|merge| merge.commit.oid)).collect();
    let by = Some(merge);
    assert_eq!(merges, [None, None, by, by, by, None, None, None]);
    assert_eq!(found[0].commit.before, Some(merge));

    let elsewhere = graph.world.commit_at(1_700_000_000, &[own[0]], &[], "");
    let error = history.find_commits(&[elsewhere.to_string()]).expect_err("the branch does not have it");
    assert!(matches!(error, FindCommitError::Elsewhere(oid) if oid == elsewhere), "{error}");
}

#[test]
fn the_sides_of_a_merge_are_the_values_before_it_and_where_they_separated() {
    let mut graph = Graph::new(MAP, map, r#""x":"0""#);
    let base = map(r#""x":"0""#);
    let ours = map(r#""x":"0","own":"1""#);
    let deletion = graph.world.commit_at(1_700_000_500, &[graph.base], &[(MAP, None)], "");
    graph.world.put(0, &[(MAP, Some(ours.as_bytes()))]);
    let merge = graph.world.merge(0, deletion, Policy::Later, &[MAP], false);
    let history = graph.world.history(0);
    let found = history.find_commits(&[deletion.to_string()]).expect("the branch has it").remove(0);
    let brought_by = found.merge.expect("a merge brought it");
    assert_eq!(brought_by.commit.oid, merge);
    let sides = history.merge_sides(&brought_by, deletion, MAP.as_bytes()).expect("the history can be read");
    let expected = MergeSides { base: Some(base.into_bytes()), ours: Some(ours.into_bytes()), merged: None };
    assert_eq!(sides, expected);
    let elsewhere = history.merge_sides(&brought_by, deletion, b"/elsewhere").expect("the history can be read");
    assert_eq!(elsewhere, MergeSides::default());
}

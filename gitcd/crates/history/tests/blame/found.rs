//! Commits by their IDs, in the order of the history.

use git2::Oid;
use gitcd_history::find::{FindCommitError, MergeSides};
use gitcd_merge::Policy;

use crate::merges::{Graph, map};

const MAP: &str = "/registry/configmaps/n/a";

/// The clock of the other branch is years ahead, and goes backwards.
#[test]
fn named_commits_are_ordered_by_history_whatever_the_clocks_say() {
    let mut graph = Graph::new(MAP, map, r#""x":"0""#);
    let other = "/registry/configmaps/n/b";
    let value = |x: i64| map(&format!(r#""x":"{x}""#));
    let mut theirs: Vec<Oid> = Vec::new();
    for number in 1..4 {
        let parent = theirs.last().copied().unwrap_or(graph.base);
        let put = (other, Some(value(number)));
        let put = (put.0, put.1.as_deref().map(str::as_bytes));
        theirs.push(graph.world.commit_at(1_900_000_000 - 1000 * number, &[parent], &[put], ""));
    }
    let put = |graph: &mut Graph, x: i64| graph.world.put(0, &[(MAP, Some(value(x).as_bytes()))]);
    let own = [put(&mut graph, 1), put(&mut graph, 2)];
    let merge = graph.world.merge(0, theirs[2], Policy::Later, &[MAP, other], false);
    let last = put(&mut graph, 3);
    graph.world.flush(0);

    let history = graph.world.history(0);
    let named = [own[1], theirs[0], last, theirs[2], own[0], own[1], merge, theirs[1]];
    let ids: Vec<String> = named.iter().map(|oid| oid.to_string()[..12].to_owned()).collect();
    let found = history.find_commits(&ids).expect("the branch has them");
    let order: Vec<Oid> = found.iter().map(|found| found.commit.commit.oid).collect();
    assert_eq!(order, [last, merge, theirs[2], theirs[1], theirs[0], own[1], own[0]]);
    let merges: Vec<Option<Oid>> =
        found.iter().map(|found| found.merge.as_ref().map(|merge| merge.commit.oid)).collect();
    let by = Some(merge);
    assert_eq!(merges, [None, None, by, by, by, None, None]);
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
    // Stored values end with a line break.
    let expected = [base, ours].map(|value| Some((value + "\n").into_bytes()));
    let [base, ours] = expected;
    let expected = MergeSides { base, ours, merged: None };
    assert_eq!(sides, expected);
    let elsewhere = history.merge_sides(&brought_by, deletion, b"/elsewhere").expect("the history can be read");
    assert_eq!(elsewhere, MergeSides::default());
}

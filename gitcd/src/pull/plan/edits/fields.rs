//! The last edits of each field.

use std::collections::BTreeSet;

use git2::Oid;

use super::known::Known;
use crate::merge::value::{Map, Syntax, Value};

/// Which history an edit is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Ours,
    Theirs,
}

/// What a commit made of a field.
#[derive(Clone, Debug)]
pub(super) struct Point<V> {
    pub(super) at: Oid,
    pub(super) from: From,
    pub(super) value: V,
    /// In its parents.
    pub(super) before: Vec<V>,
}

/// Which value is that of the last edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last<V> {
    Ours,
    Theirs,
    /// Neither side's: both have seen edits of the other that theirs gave way to.
    Neither(V),
}

/// The value of the last edits, if that is not in both sides, or it cannot be told which side is to give way.
///
/// A side that has no edits of its own gives way, and one whose value is none that the last edits made.
pub(super) fn last<V: Copy + PartialEq>(
    known: &Known,
    points: &[Point<V>],
    sides: [V; 2],
    order: impl Fn(V) -> Vec<u8>,
) -> Option<Last<V>> {
    let touching: Vec<&Point<V>> =
        points.iter().filter(|point| point.before.iter().all(|before| *before != point.value)).collect();
    let has = |from: From| touching.iter().any(|point| point.from == from);
    match (has(From::Ours), has(From::Theirs)) {
        (true, true) => {}
        _ if sides[0] == sides[1] => return None,
        (true, false) => return Some(Last::Ours),
        (false, true) => return Some(Last::Theirs),
        (false, false) => return None,
    }
    let is_last = |point: &&&Point<V>| !touching.iter().any(|later| known.has(later.at, point.at));
    let last: Vec<V> = touching.iter().filter(is_last).map(|point| point.value).collect();
    match sides.map(|side| last.contains(&side)) {
        [true, true] => None,
        [true, false] => Some(Last::Ours),
        [false, true] => Some(Last::Theirs),
        [false, false] => last.into_iter().max_by_key(|value| order(*value)).map(Last::Neither),
    }
}

/// Fields with rules of their own, which need the base as it was.
fn is_bookkeeping(within: &str, name: &str) -> bool {
    const OF_METADATA: [&str; 7] = [
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "uid",
    ];
    within == "metadata" && OF_METADATA.contains(&name) || within == "status" && name == "observedGeneration"
}

/// What to merge so that each field becomes what its last edits made of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjusted {
    pub(super) base: Map,
    /// Theirs, if it has to be another one.
    pub(super) theirs: Option<Map>,
}

/// A base, and maybe a side, that merge to the last edits; `None` if they do so as they are.
pub(super) fn adjusted(
    known: &Known,
    base: Option<&Value>,
    [ours, theirs]: [&Value; 2],
    points: &[Point<Option<&Value>>],
) -> Option<Adjusted> {
    let (Value::Map(ours), Value::Map(theirs)) = (ours, theirs) else { return None };
    let base = base.and_then(Value::as_map).cloned().unwrap_or_default();
    adjust(known, base, [ours, theirs], points, "")
}

fn adjust(
    known: &Known,
    base: Map,
    [ours, theirs]: [&Map; 2],
    points: &[Point<Option<&Value>>],
    within: &str,
) -> Option<Adjusted> {
    let mut adjusted = Adjusted { base, theirs: None };
    let mut is_changed = false;
    let of_points = points.iter().filter_map(|point| point.value.and_then(Value::as_map)).flat_map(Map::iter);
    let names: BTreeSet<_> = ours.iter().chain(theirs.iter()).chain(of_points).map(|(name, _)| name).collect();
    for name in names {
        let name = &*name;
        if is_bookkeeping(within, name) {
            continue;
        }
        let sides = [ours.get(name), theirs.get(name)];
        let points: Vec<_> = points
            .iter()
            .map(|point| Point {
                at: point.at,
                from: point.from,
                value: field(point.value, name),
                before: point.before.iter().map(|before| field(*before, name)).collect(),
            })
            .collect();
        if let [Some(Value::Map(one)), Some(Value::Map(other))] = sides {
            let below = adjusted.base.get(name).and_then(Value::as_map).cloned().unwrap_or_default();
            if let Some(below) = adjust(known, below, [one, other], &points, name) {
                adjusted.base.set(name, Value::Map(below.base));
                if let Some(below) = below.theirs {
                    adjusted.theirs.get_or_insert_with(|| theirs.clone()).set(name, Value::Map(below));
                }
                is_changed = true;
            }
            continue;
        }
        let order = |value: Option<&Value>| value.map(|value| value.write(Syntax::Json)).unwrap_or_default();
        let before = match last(known, &points, sides, order) {
            None => continue,
            Some(Last::Ours) => sides[1],
            Some(Last::Theirs) => sides[0],
            Some(Last::Neither(value)) => {
                put(adjusted.theirs.get_or_insert_with(|| theirs.clone()), name, value);
                sides[0]
            }
        };
        is_changed = true;
        put(&mut adjusted.base, name, before);
    }
    is_changed.then_some(adjusted)
}

fn field<'v>(value: Option<&'v Value>, name: &str) -> Option<&'v Value> {
    value?.as_map()?.get(name)
}

fn put(map: &mut Map, name: &str, value: Option<&Value>) {
    match value {
        Some(value) => map.set(name, value.clone()),
        None => map.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use git2::{Repository, Signature, Time};

    use super::*;
    use crate::git::graph::Graph;

    /// A chain of commits: each has those before it in its history.
    fn chain() -> (Known, Vec<Oid>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let repository = Repository::init_bare(folder.path()).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let (mut commits, mut last): (Vec<Oid>, Vec<Oid>) = Default::default();
        for time in 1..4 {
            let author = Signature::new("a", "a@b", &Time::new(time, 0)).unwrap();
            let parents: Vec<_> = last.iter().map(|oid| repository.find_commit(*oid).unwrap()).collect();
            let tree = repository.find_tree(tree).unwrap();
            let commit =
                repository.commit(None, &author, &author, "", &tree, &parents.iter().collect::<Vec<_>>()).unwrap();
            commits.push(commit);
            last = vec![commit];
        }
        let known = Known::new(&mut Graph::default(), &repository, [commits[2]; 2], commits.iter()).unwrap();
        (known, commits, folder)
    }

    fn point(at: Oid, from: From, value: u8, before: &[u8]) -> Point<u8> {
        Point { at, from, value, before: before.to_vec() }
    }

    #[test]
    fn a_side_gives_way_that_edited_nothing_or_whose_value_no_last_edit_made() {
        let (known, commits, _folder) = chain();
        let [_, second, third] = commits[..] else { panic!("{commits:?}") };
        let decided = |points: &[Point<u8>], sides: [u8; 2]| last(&known, points, sides, |value| vec![value]);
        let ours = point(second, From::Ours, 1, &[0]);
        assert_eq!(decided(std::slice::from_ref(&ours), [1, 0]), Some(Last::Ours));
        assert_eq!(decided(&[point(second, From::Theirs, 1, &[0])], [2, 1]), Some(Last::Theirs));
        // A merge that took it from a parent is no edit, and neither is what both have.
        assert_eq!(decided(&[point(second, From::Ours, 1, &[1, 0])], [1, 0]), None);
        // Theirs has seen 1 and made 2 of it; ours has 1 from elsewhere.
        let theirs = point(third, From::Theirs, 2, &[1]);
        assert_eq!(decided(&[ours.clone(), theirs.clone()], [1, 2]), Some(Last::Theirs));
        assert_eq!(decided(&[ours.clone(), theirs], [1, 3]), Some(Last::Neither(2)));
        // Neither has seen the other: the bases decide.
        let stranger = point(Oid::ZERO_SHA1, From::Theirs, 3, &[0]);
        assert_eq!(decided(&[ours.clone(), stranger.clone()], [1, 3]), None);
        assert_eq!(decided(&[ours, stranger], [4, 4]), Some(Last::Neither(3)));
    }

    #[test]
    fn bookkeeping_keeps_the_base_it_has() {
        let (known, commits, _folder) = chain();
        let value = |text: &str| Value::parse(text.as_bytes()).expect("it is an object").0;
        let base =
            value(r#"{"metadata":{"generation":1,"labels":{"a":"0"}},"status":{"observedGeneration":1,"phase":"0"}}"#);
        let ours =
            value(r#"{"metadata":{"generation":2,"labels":{"a":"1"}},"status":{"observedGeneration":2,"phase":"1"}}"#);
        let points = [Point { at: commits[1], from: From::Ours, value: Some(&ours), before: vec![Some(&base)] }];
        let adjusted = adjusted(&known, Some(&ours), [&ours, &base], &points).expect("something is to be done");
        let expected =
            r#"{"metadata":{"generation":2,"labels":{"a":"0"}},"status":{"observedGeneration":2,"phase":"0"}}"#;
        assert_eq!(Value::Map(adjusted.base).write(Syntax::Json), expected.as_bytes());
        assert!(adjusted.theirs.is_none());
    }
}

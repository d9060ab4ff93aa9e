//! Adjustment of merges to the last edits of each field.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use git2::Oid;
use gitcd_merge::schema::Node;
use gitcd_merge::value::{Map, Syntax, Value};

use super::known::Known;
use crate::plan::PlanError;

/// The history that has an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Ours,
    Theirs,
}

/// The value of a field in a commit.
#[derive(Clone, Debug)]
pub(super) struct Point<V> {
    pub(super) at: Oid,
    pub(super) from: From,
    pub(super) is_decision: bool,
    pub(super) value: V,
    /// The values in its parents.
    pub(super) before: Vec<V>,
}

impl<V: PartialEq> Point<V> {
    /// Returns whether the commit edited the field. A merge by gitcd that took the value from a parent did not.
    fn touches(&self) -> bool {
        let differs = |before: &V| *before != self.value;
        if self.is_decision { self.before.iter().any(differs) } else { self.before.iter().all(differs) }
    }
}

/// The value of the last edits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last<V> {
    Ours,
    Theirs,
    /// Neither side's value, since edits of the other side have replaced it.
    Neither(V),
}

/// Returns which value the last edits made; `None` if both sides keep theirs.
///
/// A side loses if it has no edits, or if its value was made neither by a last edit nor by an older edit that none of these edits
/// has in its history. `stays` returns whether such an older edit made the value of a side.
pub(super) fn last<V: Copy + PartialEq>(
    known: &Known,
    points: &[Point<V>],
    sides: [V; 2],
    order: impl Fn(V) -> Vec<u8>,
    mut stays: impl FnMut(usize, &[Oid]) -> Result<bool, PlanError>,
) -> Result<Option<Last<V>>, PlanError> {
    let touching: Vec<&Point<V>> = points.iter().filter(|point| point.touches()).collect();
    let has = |from: From| touching.iter().any(|point| point.from == from);
    match (has(From::Ours), has(From::Theirs)) {
        (true, true) => {}
        _ if sides[0] == sides[1] => return Ok(None),
        (true, false) => return Ok(Some(Last::Ours)),
        (false, true) => return Ok(Some(Last::Theirs)),
        (false, false) => return Ok(None),
    }
    let is_last = |point: &&&Point<V>| !touching.iter().any(|later| known.has(later.at, point.at));
    let last: Vec<V> = touching.iter().filter(is_last).map(|point| point.value).collect();
    let mut is_kept = sides.map(|side| last.contains(&side));
    let touching: Vec<Oid> = touching.iter().map(|point| point.at).collect();
    for side in 0..2 {
        // If both values are equal, one that stays is enough.
        let is_known = is_kept[side] || sides[0] == sides[1] && is_kept[1 - side];
        if !is_known {
            is_kept[side] = stays(side, &touching)?;
        }
    }
    Ok(match is_kept {
        [false, false] => last.into_iter().max_by_key(|value| order(*value)).map(Last::Neither),
        _ if sides[0] == sides[1] => None,
        [true, true] => None,
        [true, false] => Some(Last::Ours),
        [false, true] => Some(Last::Theirs),
    })
}

/// Returns which sides have last edits.
fn sides_of_last<V: PartialEq>(known: &Known, points: &[Point<V>]) -> [bool; 2] {
    let touching: Vec<&Point<V>> = points.iter().filter(|point| point.touches()).collect();
    let is_last = |point: &Point<V>| !touching.iter().any(|later| known.has(later.at, point.at));
    [From::Ours, From::Theirs].map(|from| touching.iter().any(|point| point.from == from && is_last(point)))
}

fn is_scalar(value: Option<&Value>) -> bool {
    matches!(value, Some(Value::Scalar(_)))
}

/// An object's edits, and the values to merge.
pub(super) struct Asked<'a> {
    pub(super) known: &'a Known,
    pub(super) base: Option<&'a Value>,
    pub(super) sides: [&'a Value; 2],
    pub(super) points: Vec<Point<Option<&'a Value>>>,
    pub(super) root: Option<Node<'a>>,
}

/// What to merge so that each field gets the value of its last edits.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjusted {
    /// The adjusted base, if it differs.
    pub(super) base: Option<Map>,
    /// Values of last edits that neither side has, by path.
    pub(super) neither: Vec<(Vec<String>, Option<Value>)>,
}

type Stays<'s> = &'s mut dyn FnMut(usize, &[String], &[Oid]) -> Result<bool, PlanError>;

/// Returns the adjustment; `None` if none is needed.
pub(super) fn adjusted(asked: Asked<'_>, stays: Stays<'_>) -> Result<Option<Adjusted>, PlanError> {
    let [Value::Map(ours), Value::Map(theirs)] = asked.sides else { return Ok(None) };
    let mut level = Level { known: asked.known, stays, path: Vec::new(), neither: Vec::new() };
    let base = level.adjust(asked.base.and_then(Value::as_map), [ours, theirs], asked.points, asked.root)?;
    let neither = level.neither;
    Ok((base.is_some() || !neither.is_empty()).then_some(Adjusted { base, neither }))
}

struct Level<'a, 's> {
    known: &'a Known,
    stays: Stays<'s>,
    path: Vec<String>,
    neither: Vec<(Vec<String>, Option<Value>)>,
}

/// The value that a field must have in the base, or its absence.
#[derive(Clone, Copy, Debug)]
struct Was<'v>(Option<&'v Value>);

/// The fields of an object by name.
type ByName<'v> = HashMap<Cow<'v, str>, &'v Value>;

fn by_name(value: Option<&Value>) -> ByName<'_> {
    value.and_then(Value::as_map).into_iter().flat_map(Map::iter).collect()
}

impl Level<'_, '_> {
    /// Returns the adjusted base of an object. Costs a pass over the fields of each point that edited any of them.
    fn adjust(
        &mut self,
        base: Option<&Map>,
        sides: [&Map; 2],
        mut points: Vec<Point<Option<&Value>>>,
        node: Option<Node<'_>>,
    ) -> Result<Option<Map>, PlanError> {
        points.retain(Point::touches);
        let has = |from: From| points.iter().any(|point| point.from == from);
        let has_both = has(From::Ours) && has(From::Theirs);
        if points.is_empty() || sides[0] == sides[1] && !has_both {
            return Ok(None);
        }
        let fields: Vec<(ByName<'_>, Vec<ByName<'_>>)> = points
            .iter()
            .map(|point| (by_name(point.value), point.before.iter().map(|before| by_name(*before)).collect()))
            .collect();
        let [ours, theirs] = sides.map(|side| side.iter().collect::<ByName<'_>>());
        let names = ours.keys().chain(theirs.keys()).chain(fields.iter().flat_map(|(value, _)| value.keys()));
        let names: BTreeSet<&Cow<'_, str>> = names.collect();
        let mut adjusted: Option<Map> = None;
        for name in names {
            let sides = [ours.get(name).copied(), theirs.get(name).copied()];
            if self.is_bookkeeping(name) || sides[0] == sides[1] && !has_both {
                continue;
            }
            let points: Vec<Point<Option<&Value>>> = points
                .iter()
                .zip(&fields)
                .map(|(point, (value, before))| Point {
                    at: point.at,
                    from: point.from,
                    is_decision: point.is_decision,
                    value: value.get(name).copied(),
                    before: before.iter().map(|before| before.get(name).copied()).collect(),
                })
                .filter(Point::touches)
                .collect();
            if points.is_empty() {
                continue;
            }
            let below = node.and_then(|node| node.field(name));
            self.path.push(name.to_string());
            let was = base.and_then(|base| base.get(name));
            let before = match sides {
                [Some(Value::Map(one)), Some(Value::Map(other))]
                    if !below.is_some_and(|below| is_one_value(below, [one, other])) =>
                {
                    let was = was.and_then(Value::as_map);
                    self.adjust(was, [one, other], points, below)?.map(|map| Some(Value::Map(map)))
                }
                _ => self.last(&points, sides)?.map(|Was(value)| value.cloned()),
            };
            self.path.pop();
            if let Some(before) = before {
                let map = adjusted.get_or_insert_with(|| base.cloned().unwrap_or_default());
                match before {
                    Some(value) => map.set(name, value),
                    None => map.remove(name),
                }
            }
        }
        Ok(adjusted)
    }

    /// Returns the value that a field must have in the base, if it differs.
    ///
    /// Lists with last edits of both sides are merged by item. Only scalars get a value that neither side has.
    fn last<'v>(
        &mut self,
        points: &[Point<Option<&'v Value>>],
        sides: [Option<&'v Value>; 2],
    ) -> Result<Option<Was<'v>>, PlanError> {
        let order = |value: Option<&Value>| value.map(|value| value.write(Syntax::Json)).unwrap_or_default();
        let is_list = |value: Option<&Value>| matches!(value, Some(Value::List(_)));
        if sides.into_iter().any(is_list) && sides_of_last(self.known, points) == [true, true] {
            return Ok(None);
        }
        let (path, stays) = (&self.path, &mut self.stays);
        let last = last(self.known, points, sides, order, |side, touching| stays(side, path, touching))?;
        Ok(match last {
            None => None,
            Some(Last::Ours) => Some(Was(sides[1])),
            Some(Last::Theirs) => Some(Was(sides[0])),
            Some(Last::Neither(value)) if !sides.into_iter().chain([value]).all(is_scalar) => None,
            Some(Last::Neither(value)) => {
                self.neither.push((self.path.clone(), value.cloned()));
                None
            }
        })
    }

    /// Returns whether a field has merge rules of its own, which need the original base.
    fn is_bookkeeping(&self, name: &str) -> bool {
        const OF_METADATA: [&str; 7] = [
            "creationTimestamp",
            "deletionGracePeriodSeconds",
            "deletionTimestamp",
            "generation",
            "managedFields",
            "resourceVersion",
            "uid",
        ];
        match &self.path[..] {
            [within] if within == "metadata" => OF_METADATA.contains(&name),
            [within] if within == "status" => name == "observedGeneration",
            _ => false,
        }
    }
}

/// Returns whether an object is taken from one side as a whole, or the sides have fields that exclude one another.
fn is_one_value(node: Node<'_>, sides: [&Map; 2]) -> bool {
    let is_there = |name: &&String| sides.iter().any(|side| side.get(name).is_some());
    let excludes = |group: &[String]| group.iter().filter(is_there).count() > 1;
    node.is_atomic() || node.is_whole() || node.unions().any(excludes)
}

#[cfg(test)]
mod tests {
    use git2::{Repository, Signature, Time};

    use super::*;
    use gitcd_repo::graph::Graph;

    /// Returns a chain of commits, oldest first.
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
        Point { at, from, is_decision: false, value, before: before.to_vec() }
    }

    #[test]
    fn a_side_gives_way_that_edited_nothing_or_whose_value_no_last_edit_made() {
        let (known, commits, _folder) = chain();
        let [_, second, third] = commits[..] else { panic!("{commits:?}") };
        let decided = |points: &[Point<u8>], sides: [u8; 2], stay: [bool; 2]| {
            last(&known, points, sides, |value| vec![value], |side, _| Ok(stay[side])).unwrap()
        };
        let none = [false; 2];
        let ours = point(second, From::Ours, 1, &[0]);
        assert_eq!(decided(std::slice::from_ref(&ours), [1, 0], none), Some(Last::Ours));
        assert_eq!(decided(&[point(second, From::Theirs, 1, &[0])], [2, 1], none), Some(Last::Theirs));
        // A merge by gitcd that took the value from a parent is no edit; an external merge is one.
        let merge = point(second, From::Ours, 1, &[1, 0]);
        assert_eq!(decided(std::slice::from_ref(&merge), [1, 0], none), None);
        assert_eq!(decided(&[Point { is_decision: true, ..merge }], [1, 0], none), Some(Last::Ours));
        // Theirs has changed 1 to 2; ours still has 1.
        let theirs = point(third, From::Theirs, 2, &[1]);
        assert_eq!(decided(&[ours.clone(), theirs.clone()], [1, 2], none), Some(Last::Theirs));
        assert_eq!(decided(&[ours.clone(), theirs.clone()], [1, 3], none), Some(Last::Neither(2)));
        assert_eq!(decided(&[ours.clone(), theirs], [1, 3], [false, true]), Some(Last::Theirs));
        // The edits are concurrent: the bases decide.
        let stranger = point(Oid::ZERO_SHA1, From::Theirs, 3, &[0]);
        assert_eq!(decided(&[ours.clone(), stranger.clone()], [1, 3], none), None);
        // A value on which both agree stays, unless edits have replaced it.
        assert_eq!(decided(&[ours.clone(), stranger.clone()], [4, 4], [true, false]), None);
        assert_eq!(decided(&[ours, stranger], [4, 4], none), Some(Last::Neither(3)));
    }

    fn value(text: &str) -> Value {
        Value::parse(text.as_bytes()).expect("it is an object").0
    }

    #[test]
    fn only_bookkeeping_fields_keep_their_base() {
        let (known, commits, _folder) = chain();
        let object = |generation: u8, other: u8| {
            value(&format!(
                r#"{{"metadata":{{"generation":{generation},"labels":{{"a":{other}}}}},"spec":{{"metadata":{{"generation":{other}}}}},"status":{{"observedGeneration":{generation},"phase":{other}}}}}"#
            ))
        };
        let (before, ours) = (object(1, 0), object(2, 1));
        let points = vec![Point {
            at: commits[1],
            from: From::Ours,
            is_decision: false,
            value: Some(&ours),
            before: vec![Some(&before)],
        }];
        let asked = Asked { known: &known, base: Some(&ours), sides: [&ours, &before], points, root: None };
        let adjusted = adjusted(asked, &mut |_, _, _| Ok(false)).unwrap().expect("something is to be done");
        assert_eq!(adjusted.base.map(Value::Map), Some(object(2, 0)));
        assert!(adjusted.neither.is_empty());
    }

    /// Fields that exclude one another are not mixed from several edits.
    #[test]
    fn an_atomic_value_is_one_field() {
        let (known, commits, _folder) = chain();
        let object =
            |fields: &str| value(&format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{{"nodeSelector":{fields}}}}}"#));
        let (first, ours, theirs) = (object(r#"{"a":"0"}"#), object(r#"{"a":"1","b":"1"}"#), object(r#"{"a":"2"}"#));
        let edit = |at: Oid, from: From, value, before| Point {
            at,
            from,
            is_decision: false,
            value: Some(value),
            before: vec![Some(before)],
        };
        let schemas = gitcd_merge::schema::Schemas::builtin();
        let asked = Asked {
            known: &known,
            base: Some(&first),
            sides: [&ours, &theirs],
            points: vec![edit(commits[1], From::Ours, &ours, &first), edit(commits[2], From::Theirs, &theirs, &ours)],
            root: schemas.of("v1", "Pod"),
        };
        let adjusted = adjusted(asked, &mut |_, _, _| Ok(false)).unwrap().expect("something is to be done");
        // Theirs is the later edit, so it counts as the side that changed the whole object.
        assert_eq!(adjusted.base.map(Value::Map), Some(ours));
        assert!(adjusted.neither.is_empty());
    }
}

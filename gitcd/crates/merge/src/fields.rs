//! Merge by fields: takes what only one side changed, and decides where both did.

mod disjoint;
mod lists;
mod mounted;
mod quantity;
mod related;
mod valid;

use std::collections::HashSet;

pub use self::lists::{ItemId, item_ids};
pub use self::related::taken_together;
use super::conflict::Conflict;
use super::owners::{Owners, Step, show};
use super::schema::{ListKind, Node};
use super::value::{Map, Value, canonical};
use super::{absence, metadata};
use crate::secrecy::Exposure;

/// Which side wins if both changed the same field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefer {
    /// The side that wrote later. In a tie: if both sides created the object and have a value, the greater JSON text; else the
    /// side that has a value, else the second side (sides are ordered by hash).
    Later,
    /// This side.
    Side(usize),
}

/// A merge of two versions of an object, in an order of sides that is independent of which is ours.
pub(super) struct Fields<'v> {
    pub(super) prefer: Prefer,
    /// Whether both sides created the object independently.
    pub(super) is_new: bool,
    pub(super) owners: [Owners<'v>; 2],
    pub(super) path: Vec<Step>,
    pub(super) conflicts: Vec<Conflict>,
    /// `apiVersion` and `kind`, separated by a space.
    pub(super) kind: String,
    /// How much of the object may be reported.
    pub(super) exposure: Exposure,
}

/// Maximum length of a value in a conflict, in bytes.
const EXCERPT: usize = 200;

impl Fields<'_> {
    /// Returns the merged value at the current path; `None` if it was removed.
    pub(super) fn merge(
        &mut self,
        base: Option<&Value>,
        sides: [Option<&Value>; 2],
        node: Option<Node<'_>>,
    ) -> Option<Value> {
        let [one, other] = sides;
        if one == other || base == one {
            return other.cloned();
        }
        if base == other {
            return one.cloned();
        }
        let is_list = |node: &Node<'_>| matches!(node.list(), Some(ListKind::Atomic));
        let whole = node.is_some_and(|node| node.is_atomic() || node.is_whole() || is_list(&node));
        // The API does not distinguish an absent list, or absent labels, from empty ones.
        if let Some(empty) = self.empty(sides, node).filter(|_| !whole) {
            let sides = [one.or(Some(empty)), other.or(Some(empty))];
            // Both sides have removed all items.
            let merged = if sides[0] == sides[1] { None } else { self.merge(base, sides, node) };
            return merged.filter(|merged| !absence::is_empty(merged));
        }
        match (one, other) {
            (Some(Value::Map(one)), Some(Value::Map(other))) if !whole => {
                let base = base.and_then(Value::as_map);
                let merged = Some(Value::Map(self.maps(base, [one, other], node)));
                self.bounded(merged, sides, node)
            }
            (Some(Value::List(one)), Some(Value::List(other))) => {
                let base = base.and_then(Value::as_list);
                // An empty list that stands for an absent one is not a value to choose.
                let values = sides.map(|side| side.filter(|side| !absence::is_empty(side)));
                let merged = self.lists(base, [one, other], node).or_else(|| self.choose(values));
                self.bounded(merged, sides, node)
            }
            _ => self.choose(sides),
        }
    }

    /// Returns the empty value that replaces a list or map which one side removed and the other changed.
    fn empty(&self, sides: [Option<&Value>; 2], node: Option<Node<'_>>) -> Option<&'static Value> {
        static LIST: Value = Value::List(Vec::new());
        static MAP: Value = Value::Map(Map::new());
        let ([None, Some(left)] | [Some(left), None]) = sides else { return None };
        match left {
            Value::List(_) => Some(&LIST),
            Value::Map(_) if self.is_of_metadata() || node.is_some_and(|node| node.is_map()) => Some(&MAP),
            _ => None,
        }
    }

    /// Returns the merged list or map, or one side's if the definition allows the size of either side, but not that of the result.
    fn bounded(&mut self, merged: Option<Value>, sides: [Option<&Value>; 2], node: Option<Node<'_>>) -> Option<Value> {
        let size = |value: Option<&Value>| match value {
            Some(Value::List(items)) => items.len(),
            Some(Value::Map(map)) => map.len(),
            _ => 0,
        };
        let [made, one, other] = [merged.as_ref(), sides[0], sides[1]].map(size);
        // An empty side may stand for an absent one, to which no limit applies.
        let is_valid = |size: usize| node.is_none_or(|node| node.allows(size));
        let is_left_out = made == 0 && (one == 0 || other == 0);
        if is_valid(made) || is_left_out || ![one, other].into_iter().all(|size| size == 0 || is_valid(size)) {
            return merged;
        }
        self.choose(sides.map(|side| side.filter(|side| !absence::is_empty(side))))
    }

    /// Returns whether this is a field of `metadata`, whose maps are all maps of strings.
    fn is_of_metadata(&self) -> bool {
        matches!(&*self.path, [Step::Field(part), Step::Field(_)] if part == "metadata")
    }

    /// Merges the values one step further down.
    pub(super) fn below(
        &mut self,
        step: Step,
        base: Option<&Value>,
        sides: [Option<&Value>; 2],
        node: Option<Node<'_>>,
    ) -> Option<Value> {
        self.path.push(step);
        let merged = match metadata::special(&self.path, base, sides) {
            Some(merged) => merged,
            None => self.merge(base, sides, node),
        };
        self.path.pop();
        merged
    }

    fn maps(&mut self, base: Option<&Map>, sides: [&Map; 2], node: Option<Node<'_>>) -> Map {
        let names = sides.map(Map::names);
        let base_names = base.map(Map::names).unwrap_or_default();
        let mut fields: Vec<(&str, Value)> = Vec::new();
        let order = order(
            base.into_iter().flat_map(Map::iter).map(|(name, _)| name),
            sides[0].iter().map(|(name, _)| name),
            sides[1].iter().map(|(name, _)| name),
        );
        for name in order {
            let find = |side: usize| names[side].get(&*name).map(|index| sides[side].field(*index));
            let found = [find(0), find(1)];
            let is_absent = |value: &&Value| {
                matches!(value, Value::Scalar(text) if &**text == "null")
                    && node.is_some_and(|node| node.is_absent_if_null(&name))
            };
            let before = base_names.get(&*name).map(|index| base.expect("the base has the name").field(*index).1);
            let before = before.filter(|value| !is_absent(value));
            let values = found.map(|field| field.map(|(_, value)| value).filter(|value| !is_absent(value)));
            let below = node.and_then(|node| node.field(&name));
            let merged = self.below(Step::Field(name.clone().into_owned()), before, values, below);
            // Each side removed a part, and nothing is left: omit the field, like a server.
            let is_left = |merged: &Value| {
                !absence::is_empty(merged) || values.iter().flatten().any(|value| absence::is_empty(value))
            };
            let merged =
                merged.filter(|merged| is_left(merged) || node.is_none_or(|node| !node.is_absent_if_null(&name)));
            // Keep the spelling of an absent field.
            let merged = merged
                .or_else(|| found.iter().flatten().map(|(_, value)| *value).find(|value| is_absent(value)).cloned());
            let spelled = found[1].or(found[0]).expect("the name is that of a field").0;
            fields.extend(merged.map(|merged| (spelled, merged)));
        }
        let mut map = Map::default();
        for (name, value) in fields {
            map.push(name, value);
        }
        if node.is_some_and(|node| node.unions().next().is_some()) {
            // A definition may have many unions, and an object many fields.
            let present: HashSet<String> =
                map.iter().filter(|(_, value)| says_something(value)).map(|(name, _)| name.into_owned()).collect();
            for group in node.iter().flat_map(Node::unions) {
                if group.iter().filter(|name| present.contains(*name)).nth(1).is_some() {
                    self.union(&mut map, sides, group);
                }
            }
        }
        if let Some(node) = node {
            self.related(&mut map, base, sides, node);
            self.without_node_ports(&mut map);
            self.mounted(&mut map, sides, node);
            node.disjoint().for_each(|group| self.disjoint(&mut map, sides, group, node));
        }
        map
    }

    /// Of mutually exclusive fields, takes those of one side.
    fn union(&mut self, merged: &mut Map, sides: [&Map; 2], group: &[String]) {
        let members = |map: &Map| group.iter().filter(|name| map.get(name).is_some_and(says_something)).count();
        // Leave a side as it is if it was invalid before.
        if members(merged) < 2 || sides.iter().any(|side| members(side) > 1) {
            return;
        }
        self.take(merged, sides.map(|side| pick(side, group)), group);
    }

    /// Takes a group of fields from one of the sides, given the group's fields of both. Returns which side.
    fn take<N: AsRef<str>>(&mut self, merged: &mut Map, sides: [Map; 2], group: &[N]) -> usize {
        let paths: Vec<Vec<Step>> = group
            .iter()
            .filter(|name| sides[0].get(name.as_ref()) != sides[1].get(name.as_ref()))
            .map(|name| self.path.iter().cloned().chain([Step::Field(name.as_ref().to_owned())]).collect())
            .collect();
        let [one, other] = sides.map(Value::Map);
        let winner = self.winner(&[paths.clone(), paths], [Some(&one), Some(&other)]);
        self.take_from(merged, [one, other], group, winner);
        winner
    }

    /// Takes a group of fields from the winner.
    fn take_from<N: AsRef<str>>(&mut self, merged: &mut Map, [one, other]: [Value; 2], group: &[N], winner: usize) {
        let taken = if winner == 0 { &one } else { &other };
        for name in group.iter().map(AsRef::as_ref) {
            match taken.at(&[name]) {
                Some(value) => merged.set(name, value.clone()),
                None => merged.remove(name),
            }
        }
        let (kept, lost) = if winner == 0 { (one, other) } else { (other, one) };
        self.report(Some(&kept), Some(&lost));
    }

    /// Merges only the metadata, and takes everything else from one side.
    pub(super) fn beside_metadata(&mut self, base: Option<&Value>, sides: [&Value; 2]) -> Option<Value> {
        let chosen = self.choose(sides.map(Some))?;
        let Value::Map(mut merged) = chosen else { return Some(chosen) };
        let of = |object: &'_ Value| object.at(&["metadata"]).cloned();
        let (before, metadata) = (base.and_then(of), sides.map(of));
        let node = super::schema::Schemas::any_object().field("metadata");
        let step = Step::Field("metadata".to_owned());
        match self.below(step, before.as_ref(), metadata.each_ref().map(Option::as_ref), node) {
            Some(metadata) => merged.set("metadata", metadata),
            None => merged.remove("metadata"),
        }
        Some(Value::Map(merged))
    }

    /// Takes one side's value whole; the other side's is lost and reported.
    pub(super) fn choose(&mut self, sides: [Option<&Value>; 2]) -> Option<Value> {
        let path = vec![self.path.clone()];
        let winner = self.winner(&[path.clone(), path], sides);
        self.report(sides[winner], sides[1 - winner]);
        sides[winner].cloned()
    }

    /// Returns which side wins, given the paths and values of both.
    fn winner(&self, paths: &[Vec<Vec<Step>>; 2], values: [Option<&Value>; 2]) -> usize {
        let present = values.map(|value| value.is_some());
        match self.prefer {
            Prefer::Side(side) => side,
            Prefer::Later => {
                let latest = |side: usize| paths[side].iter().filter_map(|path| self.owners[side].written(path)).max();
                let mut written = [latest(0), latest(1)];
                if written == [None, None] {
                    written = [0, 1].map(|side| self.owners[side].written(&self.path));
                }
                let written = [0, 1].map(|side| written[side].filter(|_| present[side]));
                match written[0].cmp(&written[1]) {
                    std::cmp::Ordering::Greater => 0,
                    std::cmp::Ordering::Less => 1,
                    // Several branches may have created it, and merge in any order: the greatest value is the same for all.
                    std::cmp::Ordering::Equal if self.is_new && present == [true, true] => {
                        let text = values.map(|value| value.map(canonical));
                        usize::from(text[0] <= text[1])
                    }
                    // The owners do not decide: the side that has a value wins, then the second side.
                    std::cmp::Ordering::Equal => usize::from(present[1] || !present[0]),
                }
            }
        }
    }

    pub(super) fn report(&mut self, kept: Option<&Value>, lost: Option<&Value>) {
        let (path, exposure) = (show(&self.path), self.exposure);
        let shown = |value: Option<&Value>| exposure.value(&path, value.map(|value| value.excerpt(EXCERPT)));
        let (kept, lost) = (shown(kept), shown(lost));
        self.conflicts.push(Conflict { field: exposure.path(&path).to_owned(), kept, lost });
    }
}

/// Whether a union member counts as set; `null`, `false` and `""` count as absent.
fn says_something(value: &Value) -> bool {
    !matches!(value, Value::Scalar(text) if matches!(&**text, "null" | "false" | "\"\""))
}

/// Returns an object's fields that are in a group.
fn pick<N: AsRef<str>>(map: &Map, group: &[N]) -> Map {
    let mut picked = Map::default();
    for name in group.iter().map(AsRef::as_ref) {
        if let Some(value) = map.get(name) {
            picked.set(name, value.clone());
        }
    }
    picked
}

/// Returns all names of both sides in one order: that of the side that changed the order, the second if both did. Names that only
/// the other side has follow the names that they follow there.
pub(super) fn order<N: Clone + Eq + std::hash::Hash>(
    base: impl Iterator<Item = N>,
    one: impl Iterator<Item = N>,
    other: impl Iterator<Item = N>,
) -> Vec<N> {
    use std::collections::HashMap;
    let (base, one, other): (Vec<N>, Vec<N>, Vec<N>) = (base.collect(), one.collect(), other.collect());
    let places: HashMap<&N, usize> = base.iter().enumerate().map(|(index, name)| (name, index)).collect();
    let moved = {
        let known: Vec<usize> = other.iter().filter_map(|name| places.get(name).copied()).collect();
        !known.is_sorted()
    };
    let (first, second) = if moved { (other, one) } else { (one, other) };
    let known: HashMap<&N, usize> = first.iter().enumerate().map(|(index, name)| (name, index)).collect();
    // The names that follow each name of the first side; 0 is the start.
    let mut behind: Vec<Vec<N>> = vec![Vec::new(); first.len() + 1];
    let mut at = 0;
    for name in second {
        match known.get(&name) {
            Some(index) => at = index + 1,
            None => behind[at].push(name),
        }
    }
    drop(known);
    let mut all = std::mem::take(&mut behind[0]);
    for (name, followers) in first.into_iter().zip(behind.drain(1..)) {
        all.push(name);
        all.extend(followers);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::order;

    fn merged(base: &str, one: &str, other: &str) -> String {
        order(base.chars(), one.chars(), other.chars()).into_iter().collect()
    }

    #[test]
    fn names_of_both_sides_keep_their_neighbours_and_a_changed_order_is_kept() {
        assert_eq!(merged("ab", "abc", "abd"), "abdc");
        assert_eq!(merged("abc", "abc", "cab"), "cab");
        assert_eq!(merged("abc", "cab", "abc"), "cab");
        assert_eq!(merged("", "xy", "yz"), "xyz");
        assert_eq!(merged("abc", "c", "abxc"), "abxc");
    }
}

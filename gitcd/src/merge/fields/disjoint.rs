//! Maps and map lists of one object that may not have a key in common.

use std::collections::BTreeMap;

use super::{Fields, Prefer};
use crate::merge::lists::Keys;
use crate::merge::owners::Step;
use crate::merge::schema::Node;
use crate::merge::value::{Map, Value};

/// The key of a map, or the key fields of an item of a map list.
type Key = Vec<String>;

impl Fields<'_> {
    /// A key that each side put into another field of the group stays in one of them: that of the side that wrote it later.
    pub(super) fn disjoint(&mut self, merged: &mut Map, sides: [&Map; 2], group: &[String], node: Node<'_>) {
        if group.iter().filter(|name| merged.get(name).is_some()).count() < 2 {
            return;
        }
        let repeated = by_key(merged, group, node).into_iter().filter(|(_, fields)| fields.len() > 1);
        let repeated: Vec<Key> = repeated.map(|(key, _)| key).collect();
        if repeated.is_empty() {
            return;
        }
        let of_sides = sides.map(|side| by_key(side, group, node));
        for key in repeated {
            let [Some([one]), Some([other])] = [0, 1].map(|side| of_sides[side].get(&key).map(Vec::as_slice)) else {
                // The side is invalid already: leave it as it is.
                continue;
            };
            let names = [*one, *other];
            let steps = names.map(|name| [Step::Field(name.to_owned()), step(&key, node.field(name))]);
            let winner = match self.prefer {
                Prefer::Side(side) => side,
                Prefer::Later => {
                    let written = [0, 1].map(|side| {
                        let path: Vec<Step> = self.path.iter().chain(&steps[side]).cloned().collect();
                        self.owners[side].written(&path)
                    });
                    usize::from(written[0] <= written[1])
                }
            };
            for name in group.iter().filter(|name| *name != names[winner]) {
                remove(merged, name, &key, node.field(name));
            }
            let value = |side: usize| find(sides[side].get(names[side])?, &key, node.field(names[side]));
            let (kept, lost) = (value(winner).cloned(), value(1 - winner).cloned());
            let depth = self.path.len();
            self.path.extend(steps.into_iter().nth(winner).into_iter().flatten());
            self.report(kept.as_ref(), lost.as_ref());
            self.path.truncate(depth);
        }
    }
}

/// Which fields of a group have each key.
fn by_key<'g>(map: &Map, group: &'g [String], node: Node<'_>) -> BTreeMap<Key, Vec<&'g str>> {
    let mut found: BTreeMap<Key, Vec<&str>> = BTreeMap::new();
    for name in group {
        let keys: Vec<Key> = match (map.get(name), node.field(name).and_then(Keys::of)) {
            (Some(Value::Map(below)), None) => below.iter().map(|(key, _)| vec![key.into_owned()]).collect(),
            (Some(Value::List(items)), Some(keys)) => items.iter().filter_map(|item| keys.key(item)).collect(),
            _ => Vec::new(),
        };
        for key in keys {
            let fields = found.entry(key).or_default();
            // Some item may be there twice.
            if fields.last() != Some(&name.as_str()) {
                fields.push(name);
            }
        }
    }
    found
}

fn step(key: &Key, below: Option<Node<'_>>) -> Step {
    match below.and_then(Keys::of) {
        Some(keys) => Step::Item(keys.named_texts(key)),
        None => Step::Field(key.concat()),
    }
}

fn find<'v>(value: &'v Value, key: &Key, below: Option<Node<'_>>) -> Option<&'v Value> {
    match below.and_then(Keys::of) {
        Some(keys) => value.as_list()?.iter().find(|item| keys.key(item).as_ref() == Some(key)),
        None => value.as_map()?.get(&key.concat()),
    }
}

/// What is empty then is left out, as the API does.
fn remove(map: &mut Map, name: &str, key: &Key, below: Option<Node<'_>>) {
    let is_empty = match map.get_mut(name) {
        Some(Value::Map(fields)) => {
            fields.remove(&key.concat());
            fields.is_empty()
        }
        Some(Value::List(items)) => {
            let keys = below.and_then(Keys::of);
            items.retain(|item| keys.as_ref().is_none_or(|keys| keys.key(item).as_ref() != Some(key)));
            items.is_empty()
        }
        _ => false,
    };
    if is_empty {
        map.remove(name);
    }
}

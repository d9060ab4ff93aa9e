//! Maps and map lists of an object that must not have a key in common.

use std::collections::{BTreeMap, BTreeSet};

use super::Fields;
use super::lists::Keys;
use crate::owners::Step;
use crate::schema::Node;
use crate::value::{Map, Value};

/// The key of a map, or the key fields of an item of a map list.
type Key = Vec<String>;

impl Fields<'_> {
    /// Keeps a key that the sides put into different fields of a group in only one field: by default, that of the side that wrote
    /// the key later.
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
        // Collect all values once: an object may have very many keys.
        let values =
            sides.map(|side| group.iter().map(|name| values(side.get(name), node.field(name))).collect::<Vec<_>>());
        let mut gone: Vec<BTreeSet<Key>> = vec![BTreeSet::new(); group.len()];
        for key in repeated {
            let [Some([one]), Some([other])] = [0, 1].map(|side| of_sides[side].get(&key).map(Vec::as_slice)) else {
                // A side was invalid before: leave it as it is.
                continue;
            };
            let places = [*one, *other];
            let steps = places.map(|place| {
                let name = &group[place];
                [Step::Field(name.to_owned()), step(&key, node.field(name))]
            });
            let value = |side: usize| values[side][places[side]].get(&key).copied();
            let of_side = |side: usize| self.path.iter().chain(&steps[side]).cloned().collect();
            let winner = self.winner(&[0, 1].map(|side| vec![of_side(side)]), [value(0), value(1)]);
            let (kept, lost) = (value(winner), value(1 - winner));
            let depth = self.path.len();
            self.path.extend(steps.into_iter().nth(winner).into_iter().flatten());
            self.report(kept, lost);
            self.path.truncate(depth);
            for (_, gone) in gone.iter_mut().enumerate().filter(|(place, _)| *place != places[winner]) {
                gone.insert(key.clone());
            }
        }
        for (name, gone) in group.iter().zip(&gone).filter(|(_, gone)| !gone.is_empty()) {
            remove(merged, name, gone, node.field(name));
        }
    }
}

/// Returns which fields of a group have each key, by their index in the group.
fn by_key(map: &Map, group: &[String], node: Node<'_>) -> BTreeMap<Key, Vec<usize>> {
    let mut found: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for (place, name) in group.iter().enumerate() {
        for key in values(map.get(name), node.field(name)).into_keys() {
            found.entry(key).or_default().push(place);
        }
    }
    found
}

/// Returns the values of a map, or the items of a map list, by key. Of items with the same key, returns the first.
fn values<'v>(value: Option<&'v Value>, below: Option<Node<'_>>) -> BTreeMap<Key, &'v Value> {
    match (value, below.and_then(Keys::of)) {
        (Some(Value::Map(map)), None) => map.iter().map(|(key, value)| (vec![key.into_owned()], value)).collect(),
        (Some(Value::List(items)), Some(keys)) => {
            let mut found = BTreeMap::new();
            for item in items {
                if let Some(key) = keys.key(item) {
                    found.entry(key).or_insert(item);
                }
            }
            found
        }
        _ => BTreeMap::new(),
    }
}

fn step(key: &Key, below: Option<Node<'_>>) -> Step {
    match below.and_then(Keys::of) {
        Some(keys) => Step::Item(keys.named_texts(key)),
        None => Step::Field(key.concat()),
    }
}

/// Removes keys from a map or map list, and the field itself if it becomes empty, like the API.
fn remove(map: &mut Map, name: &str, gone: &BTreeSet<Key>, below: Option<Node<'_>>) {
    let is_empty = match map.get_mut(name) {
        Some(Value::Map(fields)) => {
            fields.retain(|key| !gone.contains(&vec![key.to_owned()]));
            fields.is_empty()
        }
        Some(Value::List(items)) => {
            let keys = below.and_then(Keys::of);
            items.retain(|item| keys.as_ref().and_then(|keys| keys.key(item)).is_none_or(|key| !gone.contains(&key)));
            items.is_empty()
        }
        _ => false,
    };
    if is_empty {
        map.remove(name);
    }
}

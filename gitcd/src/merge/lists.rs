//! Lists: by the keys of their items, as sets, or whole.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::fields::{Fields, order};
use super::owners::Step;
use super::schema::{ListKind, Node};
use super::value::Value;

/// By which field the items of a list are told apart if no schema says it: the first one that every item has, each with
/// another value.
const CONVENTIONAL: [&str; 5] = ["name", "type", "uid", "key", "ip"];

/// Items that a condition is dated by, the most telling first.
const DATED: [&str; 4] = ["lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "lastProbeTime"];

/// What tells an item from others: the JSON texts of its keys, in the order of the schema.
type Key = Vec<String>;

impl Fields<'_> {
    /// The merged list, or `None` if it has to be taken whole from one side.
    pub(super) fn lists(
        &mut self,
        base: Option<&[Value]>,
        sides: [&[Value]; 2],
        node: Option<Node<'_>>,
    ) -> Option<Value> {
        let base = base.unwrap_or_default();
        let versions = [base, sides[0], sides[1]];
        // What every object has, whatever its kind.
        match &*self.path {
            [Step::Field(part), Step::Field(name)] if part == "metadata" && name == "finalizers" => {
                return set(versions).map(Value::List);
            }
            [Step::Field(part), Step::Field(name)] if part == "metadata" && name == "ownerReferences" => {
                return self.keyed(versions, &["uid"], None);
            }
            _ => {}
        }
        match node.and_then(|node| node.list()) {
            Some(ListKind::Atomic) => None,
            Some(ListKind::Set) => set(versions).map(Value::List),
            Some(ListKind::Map(keys)) => {
                let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
                self.keyed(versions, &keys, node)
            }
            None => {
                let key = CONVENTIONAL.into_iter().find(|key| {
                    versions.into_iter().all(|items| items.iter().all(|item| item.at(&[key]).is_some()))
                        && versions.into_iter().all(|items| index(items, &[key]).is_some())
                })?;
                self.keyed(versions, &[key], node)
            }
        }
    }

    fn keyed(&mut self, versions: [&[Value]; 3], names: &[&str], node: Option<Node<'_>>) -> Option<Value> {
        let [base, one, other] = versions;
        let (in_base, in_one, in_other) = (index(base, names)?, index(one, names)?, index(other, names)?);
        let keys = |items: &[Value]| items.iter().filter_map(|item| key(item, names)).collect::<Vec<_>>();
        let conditions =
            names == ["type"] && matches!(self.path.last(), Some(Step::Field(name)) if name == "conditions");
        let mut merged = Vec::new();
        for key in order(keys(base).into_iter(), keys(one).into_iter(), keys(other).into_iter()) {
            let before = in_base.get(&key).map(|at| &base[*at]);
            let sides = [in_one.get(&key).map(|at| &one[*at]), in_other.get(&key).map(|at| &other[*at])];
            let mut step: Vec<_> =
                names.iter().zip(&key).map(|(name, text)| ((*name).to_owned(), text.clone())).collect();
            step.sort();
            let item = if conditions {
                self.condition(Step::Item(step), before, sides)
            } else {
                self.below(Step::Item(step), before, sides, node.and_then(|node| node.items()))
            };
            merged.extend(item);
        }
        Some(Value::List(merged))
    }

    /// A condition says one thing with several fields, so it is taken whole: the one that changed last.
    fn condition(&mut self, step: Step, base: Option<&Value>, sides: [Option<&Value>; 2]) -> Option<Value> {
        let [one, other] = sides;
        if one == other || base == one {
            return other.cloned();
        }
        if base == other {
            return one.cloned();
        }
        self.path.push(step);
        let dated =
            |side: Option<&Value>, name: &str| side.and_then(|side| side.at(&[name])?.as_text().map(Cow::into_owned));
        let later = DATED.into_iter().map(|name| dated(one, name).cmp(&dated(other, name))).find(|order| order.is_ne());
        let chosen = match later {
            Some(order) => {
                let winner = usize::from(order.is_lt());
                self.report(sides[winner], sides[1 - winner]);
                sides[winner].cloned()
            }
            None => self.choose(sides),
        };
        self.path.pop();
        chosen
    }
}

/// `None` if an item is no object, or two have the same keys.
fn index(items: &[Value], names: &[&str]) -> Option<HashMap<Key, usize>> {
    let mut found = HashMap::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        if found.insert(key(item, names)?, at).is_some() {
            return None;
        }
    }
    Some(found)
}

/// An absent key counts as an empty one.
fn key(item: &Value, names: &[&str]) -> Option<Key> {
    let map = item.as_map()?;
    let text = |name: &&str| match map.get(name) {
        None => Some("null".to_owned()),
        Some(Value::Scalar(text)) if text.starts_with('"') => {
            // However it is spelled.
            Some(serde_json::Value::from(&*super::value::text(text)).to_string())
        }
        Some(Value::Scalar(text)) => Some(text.to_string()),
        Some(_) => None,
    };
    names.iter().map(text).collect()
}

/// What one side added is there, what one side removed is not. `None` if there is something else than scalars, or twice the same.
fn set(versions: [&[Value]; 3]) -> Option<Vec<Value>> {
    let texts =
        |items: &[Value]| items.iter().map(|item| item.as_text().map(Cow::into_owned)).collect::<Option<Vec<_>>>();
    let [base, one, other] = versions;
    let (in_base, in_one, in_other) = (texts(base)?, texts(one)?, texts(other)?);
    let distinct = |texts: &[String]| texts.iter().collect::<HashSet<_>>().len() == texts.len();
    if ![&in_base, &in_one, &in_other].into_iter().all(|texts| distinct(texts)) {
        return None;
    }
    let order = order(in_base.iter(), in_one.iter(), in_other.iter());
    let kept = order.into_iter().filter(|text| {
        let (was, has) = (in_base.contains(text), (in_one.contains(text), in_other.contains(text)));
        if was { has.0 && has.1 } else { has.0 || has.1 }
    });
    let find = |text: &String| {
        let at = |texts: &[String], items: &[Value]| {
            texts.iter().position(|found| found == text).map(|at| items[at].clone())
        };
        at(&in_other, other).or_else(|| at(&in_one, one))
    };
    kept.map(find).collect()
}

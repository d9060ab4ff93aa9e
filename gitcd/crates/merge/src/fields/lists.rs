//! Lists: merged by the keys of their items, as sets, or taken whole.

mod items;
mod key;
mod set;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

pub use self::items::{ItemId, item_ids};
use self::key::Id;
pub(super) use self::key::Keys;
use self::set::set;
use super::{Fields, order};
use crate::owners::Step;
use crate::schema::{ListKind, Node};
use crate::value::Value;

/// Fields that may identify list items without a schema: the first one that every item has, with distinct values.
const CONVENTIONAL: [&str; 5] = ["name", "type", "uid", "key", "ip"];

/// Times of a condition, the most significant first.
const DATED: [&str; 4] = ["lastTransitionTime", "lastUpdateTime", "lastHeartbeatTime", "lastProbeTime"];

impl Fields<'_> {
    /// Returns the merged list, or `None` if one side's list has to be taken whole.
    pub(super) fn lists(
        &mut self,
        base: Option<&[Value]>,
        sides: [&[Value]; 2],
        node: Option<Node<'_>>,
    ) -> Option<Value> {
        let base = base.unwrap_or_default();
        let versions = [base, sides[0], sides[1]];
        // Lists that every object has, whatever its kind.
        match &*self.path {
            [Step::Field(part), Step::Field(name)] if part == "metadata" && name == "finalizers" => {
                return set(versions).map(Value::List);
            }
            [Step::Field(part), Step::Field(name)] if part == "metadata" && name == "ownerReferences" => {
                return Some(self.keyed(versions, &Keys::named("uid"), None));
            }
            _ => {}
        }
        match node.and_then(|node| node.list()) {
            Some(ListKind::Atomic) => None,
            Some(ListKind::Set) => set(versions).map(Value::List),
            Some(ListKind::Map(_)) => Some(self.keyed(versions, &Keys::of(node?)?, node)),
            None => Some(self.keyed(versions, &conventional(versions)?, node)),
        }
    }

    fn keyed(&mut self, versions: [&[Value]; 3], keys: &Keys<'_>, node: Option<Node<'_>>) -> Value {
        let [in_base, in_one, in_other] = keys.ids(versions);
        let index = |ids: &[Id]| ids.iter().cloned().zip(0..).collect::<HashMap<Id, usize>>();
        let at = [index(&in_base), index(&in_one), index(&in_other)];
        let conditions =
            keys.are("type") && matches!(self.path.last(), Some(Step::Field(name)) if name == "conditions");
        let mut merged = Vec::new();
        for id in order(in_base.into_iter(), in_one.into_iter(), in_other.into_iter()) {
            let find = |version: usize| at[version].get(&id).map(|at| &versions[version][*at]);
            let (before, sides) = (find(0), [find(1), find(2)]);
            let step = Step::Item(keys.step(&id));
            let item = if self.is_allocated_only(before, sides) {
                None
            } else if conditions {
                self.condition(step, before, sides)
            } else {
                self.below(step, before, sides, node.and_then(|node| node.items()))
            };
            merged.extend(item);
        }
        Value::List(merged)
    }

    /// A condition makes one statement with several fields, so it is taken whole: the one that changed last.
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

/// Returns the key field of a list without a schema.
fn conventional(versions: [&[Value]; 3]) -> Option<Keys<'static>> {
    let have = |name: &str| versions.into_iter().all(|items| items.iter().all(|item| item.at(&[name]).is_some()));
    let are_distinct = |name: &str| versions.into_iter().all(|items| Keys::named(name).are_distinct(items));
    let distinct = CONVENTIONAL.into_iter().find(|name| have(name) && are_distinct(name));
    // Items with names are matched by name even if a name repeats.
    distinct.or_else(|| have("name").then_some("name")).map(Keys::named)
}

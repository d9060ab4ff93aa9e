//! Bookkeeping fields of Kubernetes, which follow from the other merged fields and never conflict.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::owners::Step;
use super::value::{Map, Value};
use super::{absence, deletion};

/// Returns the merged value of a field that has its own rule, by its path in the object.
#[expect(clippy::option_option, reason = "no rule, and a rule that leaves nothing, are different answers")]
pub(super) fn special(path: &[Step], base: Option<&Value>, sides: [Option<&Value>; 2]) -> Option<Option<Value>> {
    if let [Step::Field(part), Step::Field(annotations), Step::Field(name)] = path
        && (&**part, &**annotations, &**name) == ("metadata", "annotations", TEMPLATE_GENERATION)
    {
        // Set by `finish`.
        return Some(sides[1].or(sides[0]).cloned());
    }
    let [Step::Field(part), Step::Field(name)] = path else { return None };
    let earlier = |later: bool| {
        let times = sides.map(|side| side.and_then(Value::as_text));
        match (&times[0], &times[1]) {
            (Some(one), Some(other)) => sides[usize::from((one > other) != later)].cloned(),
            _ => sides[0].or(sides[1]).cloned(),
        }
    };
    let numbers = sides.map(|side| side.and_then(|side| side.as_text()?.parse::<i64>().ok()));
    Some(match (&**part, &**name) {
        ("metadata", "managedFields") => managed(base, sides),
        ("metadata", "creationTimestamp") => earlier(false),
        // Set by `finish`, from both sides whole.
        ("metadata", "generation" | "deletionTimestamp" | "deletionGracePeriodSeconds") => {
            sides[1].or(sides[0]).cloned()
        }
        // The lower value: the controller will observe again what it may have missed.
        ("status", "observedGeneration") if sides[0] != sides[1] && base != sides[0] && base != sides[1] => {
            numbers[0].min(numbers[1]).map(Value::number)
        }
        _ => return None,
    })
}

/// The fields that identify a manager's entry.
const ENTRY: [&str; 4] = ["manager", "operation", "apiVersion", "subresource"];

/// Merges manager by manager: the fields that either side's entry has, unless the other side removed them, and the later time.
fn managed(base: Option<&Value>, sides: [Option<&Value>; 2]) -> Option<Value> {
    let entries = |list: Option<&'_ Value>| -> BTreeMap<Vec<String>, Value> {
        let items = list.and_then(Value::as_list).unwrap_or_default();
        let key = |item: &Value| {
            ENTRY
                .map(|name| item.at(&[name]).and_then(Value::as_text).map(Cow::into_owned).unwrap_or_default())
                .to_vec()
        };
        items.iter().map(|item| (key(item), item.clone())).collect()
    };
    let (base, one, other) = (entries(base), entries(sides[0]), entries(sides[1]));
    let mut merged: Vec<(String, Vec<String>, Value)> = Vec::new();
    let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let entry = match (base.get(key), one.get(key), other.get(key)) {
            (before, Some(one), Some(other)) => Some(entry(before, one, other)),
            // Removed on one side: drop it, unless the other side changed it.
            (Some(before), Some(left), None) | (Some(before), None, Some(left)) => {
                (left != before).then(|| left.clone())
            }
            (None, left, None) | (None, None, left) => left.cloned(),
            (Some(_), None, None) => None,
        };
        if let Some(entry) = entry {
            let time = entry.at(&["time"]).and_then(Value::as_text).map(Cow::into_owned).unwrap_or_default();
            merged.push((time, key.clone(), entry));
        }
    }
    // Sorted by time, as by kube-apiserver.
    merged.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
    (!merged.is_empty()).then(|| Value::List(merged.into_iter().map(|(.., entry)| entry).collect()))
}

fn entry(before: Option<&Value>, one: &Value, other: &Value) -> Value {
    if one == other || before == Some(one) {
        return other.clone();
    }
    if before == Some(other) {
        return one.clone();
    }
    let time = |entry: &Value| entry.at(&["time"]).and_then(Value::as_text).map(Cow::into_owned);
    let (Value::Map(later), Value::Map(earlier)) = (if time(one) > time(other) { (one, other) } else { (other, one) })
    else {
        return other.clone();
    };
    let mut merged = later.clone();
    let fields = |entry: &Map| entry.get("fieldsV1").and_then(Value::as_map).cloned().unwrap_or_default();
    let before = before.and_then(Value::as_map).map(fields).unwrap_or_default();
    merged.set("fieldsV1", Value::Map(owned(&before, &fields(earlier), &fields(later))));
    Value::Map(merged)
}

/// Merges sets of fields three-way.
fn owned(base: &Map, one: &Map, other: &Map) -> Map {
    let empty = Map::default();
    let mut names: Vec<_> = one.iter().chain(other.iter()).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let places = [base, one, other].map(Map::names);
    let mut merged = Map::default();
    for name in &names {
        let below = |version: usize| {
            let (spelled, value) = [base, one, other][version].field(*places[version].get(name)?);
            Some((spelled, value.as_map()?))
        };
        let value = match (below(0), below(1), below(2)) {
            (before, Some((spelled, one)), Some((_, other))) => {
                Some((spelled, owned(before.map_or(&empty, |(_, before)| before), one, other)))
            }
            (Some((_, before)), Some(left), None) | (Some((_, before)), None, Some(left)) => {
                (before != left.1).then(|| (left.0, left.1.clone()))
            }
            (None, left, None) | (None, None, left) => left.map(|(spelled, left)| (spelled, left.clone())),
            (Some(_), None, None) => None,
        };
        if let Some((spelled, value)) = value {
            merged.push(spelled, Value::Map(value));
        }
    }
    merged
}

/// Completes a merged object with its generation and deletion. Returns whether it is deleted.
pub(super) fn finish(merged: &mut Map, sides: [&Map; 2]) -> bool {
    let generation = generation(merged, sides);
    let deletion = deletion(sides);
    let is_unbound = |side: &&Map| !deletion::is_bound(side) && deletion_of(side).is_some();
    let was_bound_meanwhile = deletion.is_some() && sides.iter().any(is_unbound);
    let granted = deletion::grace_of_pod(merged);
    let template = template_generation(merged, sides);
    let is_finalized = !has_spec_finalizers(merged);
    let Some(Value::Map(metadata)) = merged.get_mut("metadata") else { return false };
    if let (Some(template), Some(Value::Map(annotations))) = (template, metadata.get_mut("annotations")) {
        annotations.set(TEMPLATE_GENERATION, Value::string(&template.to_string()));
    }
    if let Some(Value::List(finalizers)) = metadata.get_mut("finalizers") {
        one_propagation_policy(finalizers);
    }
    if let Some(generation) = generation {
        metadata.set("generation", Value::number(generation));
    }
    let Some((time, grace)) = deletion else { return false };
    let is_zero = |grace: &Option<Value>| grace.as_ref().is_none_or(|grace| grace.as_text().as_deref() == Some("0"));
    // The deletion of an unbound pod came after its binding, and gives its kubelet time.
    let grace = if is_zero(&grace) && was_bound_meanwhile { granted.map(Value::number).or(grace) } else { grace };
    let at_once = is_zero(&grace);
    metadata.set("deletionTimestamp", time);
    match grace {
        Some(grace) => metadata.set("deletionGracePeriodSeconds", grace),
        None => metadata.remove("deletionGracePeriodSeconds"),
    }
    let held = metadata.get("finalizers").and_then(Value::as_list).is_some_and(|finalizers| !finalizers.is_empty());
    // As kube-apiserver does when the last finalizer is removed; a pod within its grace period is still terminating.
    at_once && !held && is_finalized
}

/// Returns whether the content of a Namespace remains to be deleted (`pkg/registry/core/namespace/storage`): it also has
/// finalizers in its spec.
fn has_spec_finalizers(object: &Map) -> bool {
    let text = |name: &str| object.get(name).and_then(Value::as_text).unwrap_or_default();
    let is_namespace = text("apiVersion") == "v1" && text("kind") == "Namespace";
    let finalizers = object.get("spec").and_then(|spec| spec.at(&["finalizers"])).and_then(Value::as_list);
    is_namespace && finalizers.is_some_and(|finalizers| !finalizers.is_empty())
}

/// Keeps the propagation policy that deletes less: kube-apiserver keeps only one of these finalizers.
fn one_propagation_policy(finalizers: &mut Vec<Value>) {
    let has = |finalizers: &[Value], name: &str| finalizers.iter().any(|one| one.as_text().as_deref() == Some(name));
    if has(finalizers, "orphan") && has(finalizers, "foregroundDeletion") {
        finalizers.retain(|one| one.as_text().as_deref() != Some("foregroundDeletion"));
    }
}

/// Counts changes of the template of a `DaemonSet` (`pkg/registry/apps/daemonset/strategy.go`).
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Returns the template generation of the side whose template results, otherwise a new one.
fn template_generation(merged: &Map, sides: [&Map; 2]) -> Option<i64> {
    fn template(object: &Map) -> Option<&Value> {
        object.get("spec")?.at(&["template"])
    }
    let number = |side: &Map| side.get("metadata")?.at(&["annotations", TEMPLATE_GENERATION])?.as_text()?.parse().ok();
    let [one, other]: [Option<i64>; 2] = sides.map(number);
    if one.is_none() && other.is_none() {
        return None;
    }
    let is_kept = sides.map(|side| template(side) == template(merged));
    match is_kept {
        [true, true] => None,
        [true, false] => one,
        [false, true] => other,
        [false, false] => Some(one?.max(other?).saturating_add(1)),
    }
}

/// Returns the generation of the side whose content results if the other side's is lower, otherwise a new one.
fn generation(merged: &Map, sides: [&Map; 2]) -> Option<i64> {
    let number = |side: &Map| side.get("metadata")?.as_map()?.get("generation")?.as_text()?.parse::<i64>().ok();
    let (one, other) = (number(sides[0]), number(sides[1]));
    if one.is_none() && other.is_none() {
        return None;
    }
    let same = |side: &Map| {
        // The start of a deletion is a new generation, too.
        let is_terminating = sides.iter().any(|side| deletion_of(side).is_some());
        deletion_of(side).is_some() == is_terminating && side.equals_except(merged, &["metadata", "status"])
    };
    // A generation stands for one content: a controller that has observed the other side's content has not observed this one.
    let above = |kept: Option<i64>, lost: Option<i64>| match (kept, lost) {
        (Some(kept), Some(lost)) => Some(kept.max(lost.saturating_add(1))),
        (kept, lost) => kept.or(lost),
    };
    match (same(sides[0]), same(sides[1])) {
        (true, true) => one.max(other),
        (true, false) => above(one, other),
        (false, true) => above(other, one),
        (false, false) => one.max(other).map(|highest| highest.saturating_add(1)),
    }
}

/// Returns the time and the grace period of the deletion, if a side was deleted; the earlier deletion if both were.
fn deletion(sides: [&Map; 2]) -> Option<(Value, Option<Value>)> {
    let grace = |grace: &Option<Value>| grace.as_ref().and_then(|grace| grace.as_text()?.parse::<i64>().ok());
    let found =
        sides.into_iter().filter_map(deletion_of).min_by_key(|(text, _, seconds)| (text.clone(), grace(seconds)));
    found.map(|(_, time, grace)| (time, grace))
}

/// Returns the time of a side's deletion as text and as written, and its grace period.
fn deletion_of(side: &Map) -> Option<(String, Value, Option<Value>)> {
    let metadata = side.get("metadata")?.as_map()?;
    let time = metadata.get("deletionTimestamp").filter(|time| !absence::is_empty(time))?;
    let text = time.as_text()?.into_owned();
    Some((text, time.clone(), metadata.get("deletionGracePeriodSeconds").cloned()))
}

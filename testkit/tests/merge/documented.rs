//! Documented differences between a merge and a serial order of the requests (`docs/design/merge.md`).

use gitcd::merge::schema::{ListKind, Schemas};
use serde_json::Value;

use crate::compare::{Difference, differences, sorted};
use crate::keyed;
use crate::requests::Request;

/// An intended difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documented {
    /// Items that both sides added to a list are in another order.
    OrderOfItems,
    /// One side's apply without force changed a field that another manager changed on the other side.
    UnforcedApply,
    /// A request that kube-apiserver would reject after the other side's requests counts as edits of its fields.
    RefusedBeside,
    /// A request set a field to the value that it had, which a merge does not see as an edit.
    SameValue,
    /// A side's edits of an object that it deleted are lost, if the object stays because of the other side's finalizers.
    BeforeDeletion,
    /// A pod that one side bound gets its own grace period, whatever the other side requested when it deleted the unbound pod.
    GraceOfBoundPod,
    /// One of the propagation policies of two deletions is kept.
    Propagation,
    /// A side created another object with the name, and this object is kept unchanged.
    AnotherObject,
    /// Both sides edited parts of a value that is merged as a whole.
    Whole,
    /// Fields that Kubernetes validates together come from one side.
    Together,
    /// An allocation that kube-apiserver would make for the combination of both is missing.
    Allocation,
    /// Conflicts of several fields are decided separately.
    FieldByField,
    /// A field that a side changed and reset counts as unchanged.
    SetBack,
    /// The same manager applied on both sides, and has the fields of both.
    OneApplier,
}

impl Documented {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OrderOfItems => "order of items",
            Self::UnforcedApply => "apply without force",
            Self::RefusedBeside => "rejected beside the other side's change",
            Self::SameValue => "a field set to the value it had",
            Self::BeforeDeletion => "edits by the side that deleted",
            Self::GraceOfBoundPod => "grace period of a bound pod",
            Self::Propagation => "propagation policies of two deletions",
            Self::AnotherObject => "another object with the name",
            Self::Whole => "a value merged as a whole",
            Self::Together => "fields that are validated together",
            Self::Allocation => "allocation for a combination",
            Self::FieldByField => "conflicts are decided field by field",
            Self::SetBack => "changed and reset",
            Self::OneApplier => "one manager applied on both sides",
        }
    }
}

/// A case whose result no serial order has.
pub(crate) struct Facts<'c> {
    pub(crate) base: Option<&'c str>,
    pub(crate) sides: [Option<&'c str>; 2],
    pub(crate) schemas: &'c Schemas,
    pub(crate) requests: [&'c [Request]; 2],
    /// The base, normalized like the merged object.
    pub(crate) before: Option<&'c Value>,
    pub(crate) merged: Option<&'c Value>,
    /// The sides, normalized like the merged object.
    pub(crate) shown: [Option<Value>; 2],
    pub(crate) serials: &'c [Option<&'c Value>],
}

/// Returns whether the merged pod has the grace period of its spec, or none because it has ended.
fn is_grace_of_bound_pod(merged: Option<&Value>, difference: &Difference) -> bool {
    let own = merged.map(|merged| &merged["spec"]["terminationGracePeriodSeconds"]);
    let has_ended =
        merged.is_some_and(|merged| matches!(merged["status"]["phase"].as_str(), Some("Failed" | "Succeeded")));
    let is_expected = difference.merged.as_ref() == own || has_ended && difference.merged == Some(Value::from(0));
    difference.path == "metadata.deletionGracePeriodSeconds" && is_expected
}

/// Returns whether two lists of finalizers differ only by the propagation policy of a deletion.
fn is_of_policy(difference: &Difference) -> bool {
    let other = |finalizers: &Option<Value>| -> Vec<Value> {
        let all = finalizers.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
        all.into_iter().filter(|name| name != "orphan" && name != "foregroundDeletion").collect()
    };
    difference.path == "metadata.finalizers" && other(&difference.merged) == other(&difference.serial)
}

pub(crate) fn find(facts: &Facts<'_>) -> Option<Documented> {
    let uids = facts.sides.map(|side| side.and_then(uid));
    let before = facts.base.and_then(uid);
    let stays = |side: usize| {
        uids[side].is_some()
            && uids[side] != before
            && uids[1 - side] != uids[side]
            && facts.shown[side].as_ref() == facts.merged
    };
    if uids.iter().all(Option::is_some) && (stays(0) || stays(1)) {
        return Some(Documented::AnotherObject);
    }
    let deletions = |requests: &[Request]| requests.iter().filter(|request| request.is_deletion()).count();
    let has_several_deletions = facts.requests.into_iter().map(deletions).sum::<usize>() > 1;
    for serial in facts.serials {
        let policy = |difference: &Difference| has_several_deletions && is_of_policy(difference);
        let grace = |difference: &Difference| is_grace_of_bound_pod(facts.merged, difference) || policy(difference);
        let in_any_order = differences(facts.merged.map(sorted).as_ref(), serial.map(sorted).as_ref());
        let is_by_policy = in_any_order.iter().all(policy)
            || has_several_deletions && serial.is_none() && facts.merged.is_some_and(waits_for_policy);
        if is_by_policy {
            return Some(Documented::Propagation);
        }
        // On a bound pod, a second deletion without a policy changes nothing, on an unbound one it removes the first one's policy.
        if facts.merged.is_some_and(|merged| merged["kind"] == "Pod") && in_any_order.iter().all(grace) {
            return Some(Documented::GraceOfBoundPod);
        }
        if serial.is_none() && is_bound_and_deleted(facts) {
            return Some(Documented::GraceOfBoundPod);
        }
        if in_any_order.iter().all(|difference| is_whole(facts, &difference.path)) {
            return Some(Documented::Whole);
        }
    }
    let without_ports = |object: Option<&Value>| {
        let mut object = object.filter(|object| object["kind"] == "Service")?.clone();
        for port in object["spec"]["ports"].as_array_mut()? {
            port.as_object_mut()?.shift_remove("nodePort");
        }
        // Items that both sides added may also be in another order.
        Some(sorted(&object))
    };
    let merged = without_ports(facts.merged);
    if merged.is_some() && facts.serials.iter().any(|serial| without_ports(*serial) == merged) {
        return Some(Documented::Allocation);
    }
    let beside_ports = |serial: Option<&Value>| {
        differences(merged.as_ref().or(facts.merged), without_ports(serial).as_ref().or(serial))
    };
    let is_explained = |difference: &Difference| is_together(facts, difference);
    if facts.serials.iter().copied().map(beside_ports).any(|found| found.iter().all(is_explained)) {
        return Some(Documented::Together);
    }
    let merged = facts.merged.map(sorted);
    if facts.serials.iter().any(|serial| serial.map(sorted) == merged) {
        return Some(Documented::OrderOfItems);
    }
    let sort = |object: Option<&Value>| object.map(sorted);
    let compared = |serial: Option<&Value>| differences(sort(facts.merged).as_ref(), sort(serial).as_ref());
    let found: Vec<_> = facts.serials.iter().copied().map(compared).collect();
    let all = |explains: &dyn Fn(&Difference) -> bool| found.iter().any(|found| found.iter().all(explains));
    let conflict = |difference: &Difference| is_conflict(facts, &difference.path);
    if all(&conflict) {
        return Some(Documented::FieldByField);
    }
    let before_deletion = |difference: &Difference| {
        let edited = |side: usize| facts.requests[side].iter().any(|request| request.edits_at(&difference.path));
        difference.merged.as_ref() == at(facts.before, &difference.path)
            && (0..2).any(|side| facts.sides[side].is_none() && edited(side))
    };
    if all(&before_deletion) {
        return Some(Documented::BeforeDeletion);
    }
    let set_back = |difference: &Difference| {
        let unchanged = |side: usize| facts.at(side, &difference.path) == at(facts.before, &difference.path);
        (0..2).any(|side| {
            unchanged(side) && facts.requests[side].iter().any(|request| request.edits_at(&difference.path))
        })
    };
    if all(&|difference| conflict(difference) || set_back(difference)) {
        return Some(Documented::SetBack);
    }
    let appliers = facts.requests.map(|requests| requests.iter().filter_map(Request::applier).collect::<Vec<_>>());
    let is_shared = appliers[0].iter().any(|manager| appliers[1].contains(manager));
    if is_shared && all(&|difference| conflict(difference) || has_more(difference)) {
        return Some(Documented::OneApplier);
    }
    in_items(facts, is_shared)
}

/// Returns whether the merged object has all that the serial one has of a field, and more.
fn has_more(difference: &Difference) -> bool {
    match (&difference.merged, &difference.serial) {
        (_, None) => !difference.path.is_empty(),
        (Some(Value::Array(merged)), Some(Value::Array(serial))) => serial.iter().all(|item| merged.contains(item)),
        _ => false,
    }
}

/// Returns the difference that explains a case if the fields of items in lists are compared one by one. `is_shared`: one
/// manager applied on both sides.
fn in_items(facts: &Facts<'_>, is_shared: bool) -> Option<Documented> {
    let by_key = |object: Option<&Value>| object.map(|object| sorted(&keyed::by_key(facts.schemas, object)));
    let (before, merged) = (by_key(facts.before), by_key(facts.merged));
    let shown = facts.shown.each_ref().map(|side| by_key(side.as_ref()));
    let serials: Vec<_> = facts.serials.iter().map(|serial| by_key(*serial)).collect();
    let facts = Facts { before: before.as_ref(), merged: merged.as_ref(), shown, serials: &[], ..*facts };
    let found = |serial: &Option<Value>| differences(facts.merged, serial.as_ref());
    let conflict = |difference: &Difference| is_conflict(&facts, &difference.path);
    let together = |difference: &Difference| is_together(&facts, difference) || conflict(difference);
    if serials.iter().any(|serial| found(serial).iter().all(conflict)) {
        return Some(Documented::FieldByField);
    }
    if serials.iter().any(|serial| found(serial).iter().all(together)) {
        return Some(Documented::Together);
    }
    let one_applier = |difference: &Difference| conflict(difference) || has_more(difference);
    let is_explained = is_shared && serials.iter().any(|serial| found(serial).iter().all(one_applier));
    is_explained.then_some(Documented::OneApplier)
}

/// Returns whether an object is terminating, and only the propagation policy of its deletion keeps it.
fn waits_for_policy(object: &Value) -> bool {
    let is_policy = |name: &Value| name == "orphan" || name == "foregroundDeletion";
    object["metadata"]["deletionTimestamp"].is_string()
        && object["metadata"]["finalizers"].as_array().is_some_and(|names| names.iter().all(is_policy))
}

/// Returns whether one side bound the pod, and the other one deleted it.
fn is_bound_and_deleted(facts: &Facts<'_>) -> bool {
    let Some(merged) = facts.merged.filter(|merged| merged["kind"] == "Pod") else { return false };
    let is_bound =
        merged["spec"]["nodeName"].is_string() && facts.before.is_some_and(|pod| pod["spec"]["nodeName"].is_null());
    is_bound && merged["metadata"]["deletionTimestamp"].is_string() && facts.sides.contains(&None)
}

/// Returns whether a field belongs to a group of which both sides changed a part, and the merged object has the group of one
/// side.
fn is_together(facts: &Facts<'_>, difference: &Difference) -> bool {
    let Some(merged) = facts.merged else { return false };
    let (Some(version), Some(kind)) = (merged["apiVersion"].as_str(), merged["kind"].as_str()) else { return false };
    let (mut node, mut way) = (facts.schemas.of(version, kind), Vec::new());
    for step in difference.path.split('.') {
        let Some(here) = node else { return false };
        let is_taken = |group: &[&str]| {
            let of = |object: Option<&Value>| -> Vec<Option<Value>> {
                let holder = object.and_then(|object| way.iter().try_fold(object, |value, step| value.get(*step)));
                group.iter().map(|field| holder.and_then(|holder| holder.get(*field)).cloned()).collect()
            };
            let (before, sides) = (of(facts.before), [0, 1].map(|side| of(facts.shown[side].as_ref())));
            group.contains(&step) && sides.iter().all(|side| *side != before) && sides.contains(&of(Some(merged)))
        };
        let mut unions = here.unions().map(|union| union.iter().map(String::as_str).collect::<Vec<_>>());
        if gitcd::merge::taken_together(here).any(is_taken) || unions.any(|union| is_taken(&union)) {
            return true;
        }
        way.push(step);
        node = keyed::below(&here, step);
    }
    false
}

/// Returns whether both sides changed the field differently, and the merged object has the value of one.
fn is_conflict(facts: &Facts<'_>, path: &str) -> bool {
    let (before, sides) = (at(facts.before, path), [0, 1].map(|side| facts.at(side, path)));
    let merged = at(facts.merged, path);
    // Whether the object exists at all is not a conflict of fields.
    !path.is_empty() && sides.iter().all(|side| *side != before) && sides.contains(&merged)
}

/// Returns the value of a field. Names of fields may contain dots.
fn at<'v>(object: Option<&'v Value>, path: &str) -> Option<&'v Value> {
    let object = object?;
    if path.is_empty() {
        return Some(object);
    }
    object.as_object()?.iter().find_map(|(name, value)| {
        let rest = path.strip_prefix(name.as_str())?;
        if rest.is_empty() { Some(value) } else { at(Some(value), rest.strip_prefix('.')?) }
    })
}

impl Facts<'_> {
    fn at(&self, side: usize, path: &str) -> Option<&Value> {
        at(self.shown[side].as_ref(), path)
    }
}

fn uid(object: &str) -> Option<String> {
    let object: Value = serde_json::from_str(object).ok()?;
    Some(object["metadata"]["uid"].as_str()?.to_owned())
}

/// Returns whether a path leads into a value that the schema merges as a whole, and the merged object has that of one side.
fn is_whole(facts: &Facts<'_>, path: &str) -> bool {
    let Some(merged) = facts.merged else { return false };
    let (Some(version), Some(kind)) = (merged["apiVersion"].as_str(), merged["kind"].as_str()) else { return false };
    let (mut node, mut way) = (facts.schemas.of(version, kind), Vec::new());
    for step in path.split('.') {
        way.push(step);
        node = node.and_then(|node| node.field(step));
        let whole = |node: &gitcd::merge::schema::Node<'_>| {
            node.is_atomic() || node.is_whole() || matches!(node.list(), Some(ListKind::Atomic))
        };
        if node.as_ref().is_some_and(whole) {
            let at = |object: Option<&Value>| way.iter().try_fold(object?, |value, step| value.get(*step)).cloned();
            return facts.shown.iter().any(|side| at(side.as_ref()) == at(Some(merged)));
        }
    }
    false
}

//! The differences between a merge and one kube-apiserver that the documentation has a sentence for (`docs/design/merge.md`).

use serde_json::Value;

use crate::compare::sorted;

/// A difference that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documented {
    /// Items that both sides added to a list come in another order.
    OrderOfItems,
    /// An apply without force of one side changed what another manager changed on the other side.
    UnforcedApply,
    /// Both sides made an object of one name, and one of the two stays as it is.
    BothMade,
    /// A counter that kube-apiserver keeps in an annotation.
    TemplateGeneration,
}

impl Documented {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OrderOfItems => "order of items",
            Self::UnforcedApply => "apply without force",
            Self::BothMade => "both made an object of one name",
            Self::TemplateGeneration => "counter of a DaemonSet's template",
        }
    }
}

/// A case that is like no serial order.
pub(crate) struct Facts<'c> {
    pub(crate) base: Option<&'c str>,
    pub(crate) sides: [Option<&'c str>; 2],
    pub(crate) merged: Option<&'c Value>,
    /// What the sides have, to be compared with the merged object.
    pub(crate) shown: [Option<Value>; 2],
    pub(crate) serials: &'c [Option<&'c Value>],
}

pub(crate) fn find(facts: &Facts<'_>) -> Option<Documented> {
    let uids = facts.sides.map(|side| side.and_then(uid));
    if let [Some(one), Some(other)] = &uids
        && one != other
        && ![one, other].contains(&&facts.base.and_then(uid).unwrap_or_default())
        && facts.shown.iter().any(|side| side.as_ref() == facts.merged)
    {
        return Some(Documented::BothMade);
    }
    let counter = |object: Option<&Value>| {
        let mut object = object.cloned()?;
        let annotations = object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
        annotations.shift_remove("deprecated.daemonset.template.generation")?;
        Some(sorted(&object))
    };
    let without = counter(facts.merged);
    if without.is_some() && facts.serials.iter().any(|serial| counter(*serial) == without) {
        return Some(Documented::TemplateGeneration);
    }
    let merged = facts.merged.map(sorted);
    if facts.serials.iter().any(|serial| serial.map(sorted) == merged) {
        return Some(Documented::OrderOfItems);
    }
    None
}

fn uid(object: &str) -> Option<String> {
    let object: Value = serde_json::from_str(object).ok()?;
    Some(object["metadata"]["uid"].as_str()?.to_owned())
}

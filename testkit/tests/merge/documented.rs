//! The differences between a merge and one kube-apiserver that the documentation has a sentence for (`docs/design/merge.md`).

use serde_json::Value;

use crate::compare::sorted;
use crate::requests::Request;

/// A difference that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documented {
    /// Items that both sides added to a list come in another order.
    OrderOfItems,
}

impl Documented {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OrderOfItems => "order of items",
        }
    }
}

/// A case that is like no serial order.
pub(crate) struct Facts<'c> {
    pub(crate) base: Option<&'c str>,
    pub(crate) sides: [Option<&'c str>; 2],
    pub(crate) requests: [&'c [Request]; 2],
    pub(crate) merged: Option<&'c Value>,
    pub(crate) serials: &'c [Option<&'c Value>],
}

pub(crate) fn find(facts: &Facts<'_>) -> Option<Documented> {
    let merged = facts.merged.map(sorted);
    if facts.serials.iter().any(|serial| serial.map(sorted) == merged) {
        return Some(Documented::OrderOfItems);
    }
    None
}

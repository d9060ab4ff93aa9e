//! Merge of lists that are sets.

use std::borrow::Cow;
use std::collections::HashMap;

use super::key::{Id, Numbers};
use crate::fields::order;
use crate::value::Value;

/// Merges sets: keeps what one side added, drops what one side removed. The n-th of equal items is a separate item. `None` if an
/// item is not a scalar.
pub(super) fn set(versions: [&[Value]; 3]) -> Option<Vec<Value>> {
    let [base, one, other] = versions;
    let (in_base, in_one, in_other) = (ids(base)?, ids(one)?, ids(other)?);
    let index = |ids: &[Id]| ids.iter().cloned().zip(0..).collect::<HashMap<Id, usize>>();
    let (was, has, has_other) = (index(&in_base), index(&in_one), index(&in_other));
    let kept = order(in_base.into_iter(), in_one.into_iter(), in_other.into_iter()).into_iter().filter_map(|id| {
        let (one, other) = (has.get(&id).map(|at| &one[*at]), has_other.get(&id).map(|at| &other[*at]));
        match (was.contains_key(&id), one, other) {
            (true, Some(_), Some(item)) | (false, _, Some(item)) | (false, Some(item), None) => Some(item.clone()),
            _ => None,
        }
    });
    Some(kept.collect())
}

pub(super) fn ids(items: &[Value]) -> Option<Vec<Id>> {
    let mut numbers = Numbers::default();
    items.iter().map(|item| item.as_text().map(Cow::into_owned).map(|text| numbers.next(text))).collect()
}

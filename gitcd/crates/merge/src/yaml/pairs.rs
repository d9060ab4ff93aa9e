//! Matches the items of a list with those of a changed one.

use crate::value::{Map, Value};

/// Fields that identify list items, in the order of precedence.
const IDENTITY: [&str; 7] = ["name", "type", "uid", "key", "ip", "containerPort", "port"];

/// Limit for comparing items pair by pair, as the product of the lists' lengths.
const MAX_PAIRS: usize = 250_000;

/// Returns pairs of matching items, in the order of both lists: equal ones, and those with the same identity.
pub(super) fn pairs(old: &[Value], new: &[Value]) -> Option<Vec<(usize, usize)>> {
    let likeness = |one: &Value, other: &Value| match (one, other) {
        _ if one == other => 3,
        (Value::Map(one), Value::Map(other)) => {
            let identity = |map: &Map| IDENTITY.iter().find_map(|name| Some((*name, map.get(name)?.clone())));
            match (identity(one), identity(other)) {
                (Some(one), Some(other)) if one == other => 2,
                (None, None) => 1,
                _ => 0,
            }
        }
        _ => 0,
    };
    let prefix = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let suffix =
        old[prefix..].iter().rev().zip(new[prefix..].iter().rev()).take_while(|(one, other)| one == other).count();
    let (middle, changed) = (&old[prefix..old.len() - suffix], &new[prefix..new.len() - suffix]);
    if middle.len().saturating_mul(changed.len()) > MAX_PAIRS {
        return None;
    }
    // Find the best match of the remaining items by dynamic programming from the end.
    let width = changed.len() + 1;
    let mut best = vec![0_u32; (middle.len() + 1) * width];
    let mut alike = vec![0_u32; middle.len() * changed.len()];
    for one in (0..middle.len()).rev() {
        for other in (0..changed.len()).rev() {
            let like = likeness(&middle[one], &changed[other]);
            alike[one * changed.len() + other] = like;
            let paired = if like > 0 { like + best[(one + 1) * width + other + 1] } else { 0 };
            best[one * width + other] = paired.max(best[(one + 1) * width + other]).max(best[one * width + other + 1]);
        }
    }
    let mut pairs: Vec<(usize, usize)> = (0..prefix).map(|place| (place, place)).collect();
    let (mut one, mut other) = (0, 0);
    while one < middle.len() && other < changed.len() {
        let like = alike[one * changed.len() + other];
        if like > 0 && best[one * width + other] == like + best[(one + 1) * width + other + 1] {
            pairs.push((prefix + one, prefix + other));
            (one, other) = (one + 1, other + 1);
        } else if best[one * width + other] == best[(one + 1) * width + other] {
            one += 1;
        } else {
            other += 1;
        }
    }
    pairs.extend((0..suffix).map(|place| (old.len() - suffix + place, new.len() - suffix + place)));
    Some(pairs)
}

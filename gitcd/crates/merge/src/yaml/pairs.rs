//! Matches the items of a list with those of a changed one.

use std::collections::HashMap;

use crate::value::{Value, canonical};

/// Fields that identify list items, in the order of precedence.
const IDENTITY: [&str; 7] = ["name", "type", "uid", "key", "ip", "containerPort", "port"];

/// Limit for comparing items pair by pair, as the product of the lists' lengths.
const MAX_PAIRS: usize = 250_000;

/// Returns pairs of matching items, in the order of both lists: equal ones, and those with the same identity.
pub(super) fn pairs(old: &[Value], new: &[Value]) -> Option<Vec<(usize, usize)>> {
    let prefix = old.iter().zip(new).take_while(|(one, other)| one == other).count();
    let suffix =
        old[prefix..].iter().rev().zip(new[prefix..].iter().rev()).take_while(|(one, other)| one == other).count();
    let (middle, changed) = (&old[prefix..old.len() - suffix], &new[prefix..new.len() - suffix]);
    if middle.len().saturating_mul(changed.len()) > MAX_PAIRS {
        return None;
    }
    // Items are compared many times, so each is read only once.
    let mut numbers = Numbers::default();
    let mut forms = |items: &[Value]| items.iter().map(|item| Form::of(item, &mut numbers)).collect::<Vec<_>>();
    let (middle, changed) = (forms(middle), forms(changed));
    // Find the best match of the remaining items by dynamic programming from the end.
    let width = changed.len() + 1;
    let mut best = vec![0_u32; (middle.len() + 1) * width];
    let mut alike = vec![0_u32; middle.len() * changed.len()];
    for one in (0..middle.len()).rev() {
        for other in (0..changed.len()).rev() {
            let like = middle[one].likeness(&changed[other]);
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

/// What decides whether items match. Equal values have equal numbers.
struct Form {
    value: usize,
    is_map: bool,
    /// The identifying field of a mapping, if it has one, and the number of that field's value.
    identity: Option<(&'static str, usize)>,
}

impl Form {
    fn of(item: &Value, numbers: &mut Numbers) -> Self {
        let map = item.as_map();
        let identity = IDENTITY.into_iter().find_map(|name| Some((name, numbers.of(map?.get(name)?))));
        Self { value: numbers.of(item), is_map: map.is_some(), identity }
    }

    fn likeness(&self, other: &Self) -> u32 {
        match (self.identity, other.identity) {
            _ if self.value == other.value => 3,
            (Some(one), Some(other)) if one == other => 2,
            (None, None) if self.is_map && other.is_map => 1,
            _ => 0,
        }
    }
}

/// Numbers of distinct values.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, value: &Value) -> usize {
        let next = self.0.len();
        *self.0.entry(canonical(value)).or_insert(next)
    }
}

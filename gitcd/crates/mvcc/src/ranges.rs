//! Sets of keys, as unions of ranges.

use std::collections::BTreeMap;
use std::ops::Bound::{Included, Unbounded};

use bytes::Bytes;

use super::index::KeyRange;

/// A union of key ranges. Touching ranges are merged, so that one lookup decides whether a key is included.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// First key to the key after the last one; `None` is unbounded.
    joined: BTreeMap<Bytes, Option<Bytes>>,
}

impl Ranges {
    /// Adds a range.
    pub fn insert(&mut self, keys: &KeyRange) {
        match keys {
            KeyRange::One(key) => self.join(key.clone(), Some([key, &[0][..]].concat().into())),
            KeyRange::Span(start, end) if start < end => self.join(start.clone(), Some(end.clone())),
            KeyRange::Span(..) => {}
            KeyRange::From(start) => self.join(start.clone(), None),
        }
    }

    /// Adds another set.
    pub fn extend(&mut self, other: Self) {
        for (start, end) in other.joined {
            self.join(start, end);
        }
    }

    /// Returns whether a key is in the set.
    pub fn contains(&self, key: &[u8]) -> bool {
        let before = self.joined.range::<[u8], _>((Unbounded, Included(key))).next_back();
        before.is_some_and(|(_, end)| end.as_ref().is_none_or(|end| key < end))
    }

    fn join(&mut self, mut start: Bytes, mut end: Option<Bytes>) {
        let before = self.joined.range::<Bytes, _>(..=&start).next_back();
        if let Some((first, _)) = before.filter(|(_, last)| reaches(last.as_ref(), &start)) {
            start = first.clone();
        }
        while let Some((first, _)) =
            self.joined.range::<Bytes, _>(&start..).next().filter(|(first, _)| reaches(end.as_ref(), first))
        {
            let first = first.clone();
            let last = self.joined.remove(&first).expect("the range was found");
            end = end.zip(last).map(|(one, other)| one.max(other));
        }
        self.joined.insert(start, end);
    }
}

fn reaches(end: Option<&Bytes>, key: &Bytes) -> bool {
    end.is_none_or(|end| key <= end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Bytes> {
        proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0xFF)], 0..4).prop_map(Bytes::from)
    }

    fn range() -> impl Strategy<Value = KeyRange> {
        prop_oneof![
            4 => key().prop_map(KeyRange::One),
            4 => (key(), key()).prop_map(|(start, end)| KeyRange::Span(start, end)),
            1 => key().prop_map(KeyRange::From),
        ]
    }

    proptest! {
        #[test]
        fn a_key_is_in_the_set_if_it_is_in_one_of_the_ranges(
            one in proptest::collection::vec(range(), 0..6),
            other in proptest::collection::vec(range(), 0..6),
            keys in proptest::collection::vec(key(), 1..20),
        ) {
            let set = |ranges: &[KeyRange]| {
                let mut set = Ranges::default();
                for range in ranges {
                    set.insert(range);
                }
                set
            };
            let mut both = set(&one);
            both.extend(set(&other));
            for key in keys {
                let expected = one.iter().chain(&other).any(|range| range.contains(&key));
                prop_assert_eq!(both.contains(&key), expected, "{:?} in {:?}", key, both);
            }
            let joined: Vec<_> = both.joined.iter().collect();
            prop_assert!(joined.windows(2).all(|pair| !reaches(pair[0].1.as_ref(), pair[1].0)), "{:?}", both);
        }
    }
}

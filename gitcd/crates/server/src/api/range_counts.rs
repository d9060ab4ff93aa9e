//! Remaining keys of paginated lists. etcd counts the whole range for every page; here only the first page counts, and each
//! further page uses the count that the previous one left.

use std::hash::{BuildHasher, RandomState};

use bytes::Bytes;
use gitcd_core::revision::Revision;
use parking_lot::Mutex;

use gitcd_mvcc::index::KeyRange;
use gitcd_mvcc::query::{Found, Range};

/// Slots for concurrent lists. An evicted count is computed again.
const REMEMBERED: usize = 256;

/// Cache of key counts by range and revision. Entries never become stale, since a range at a revision does not change.
#[derive(Debug)]
pub struct RangeCountCache {
    hasher: RandomState,
    /// By hash; a new entry replaces an old one.
    known: Mutex<Box<[Option<Known>]>>,
}

#[derive(Debug)]
struct Known {
    keys: KeyRange,
    at: Revision,
    count: usize,
}

impl Default for RangeCountCache {
    fn default() -> Self {
        let known = Mutex::new((0..REMEMBERED).map(|_| None).collect());
        Self { hasher: RandomState::new(), known }
    }
}

impl RangeCountCache {
    /// Returns the number of keys in the range of a page after the first, if known.
    pub(super) fn count(&self, range: &Range) -> Option<usize> {
        let at = range.revision.filter(|_| range.limit > 0)?;
        let known = self.known.lock();
        let known = known[self.place(&range.keys, at)].as_ref();
        known.filter(|known| known.at == at && known.keys == range.keys).map(|known| known.count)
    }

    /// Remembers how many keys follow a page.
    pub(super) fn remember(&self, range: &Range, found: &Found) {
        // Otherwise the page does not end at its last pair.
        let is_in_order = range.sort.is_none() && range.filter.is_none();
        if !found.more || !is_in_order {
            return;
        }
        let Some(last) = found.pairs.last() else { return };
        let Some(keys) = after(&range.keys, &last.key) else { return };
        let at = range.revision.unwrap_or(found.revision);
        let place = self.place(&keys, at);
        self.known.lock()[place] = Some(Known { keys, at, count: found.count - found.pairs.len() });
    }

    fn place(&self, keys: &KeyRange, at: Revision) -> usize {
        self.hasher.hash_one((keys, at.get())) as usize % REMEMBERED
    }
}

/// Returns the keys of a range that follow `last`; `None` if the range is one key.
pub(super) fn after(keys: &KeyRange, last: &[u8]) -> Option<KeyRange> {
    let next: Bytes = [last, &[0]].concat().into();
    match keys {
        KeyRange::One(_) => None,
        KeyRange::Span(_, end) => Some(KeyRange::Span(next, end.clone())),
        KeyRange::From(_) => Some(KeyRange::From(next)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use gitcd_mvcc::query::Filter;
    use gitcd_mvcc::version::Version;

    fn page(start: &'static str, revision: Option<i64>) -> Range {
        let keys = KeyRange::Span(start.into(), "z".into());
        let revision = revision.map(Revision::new);
        Range { keys, revision, limit: 1, count_only: false, sort: None, filter: Filter::default(), known_count: None }
    }

    fn found(key: &'static str, count: usize) -> Found {
        let one = Revision::new(2);
        let pair = Arc::new(Version::put(key.into(), one, one, 1, 0, Bytes::new()));
        Found { revision: Revision::new(9), pairs: vec![pair], more: count > 1, count }
    }

    #[test]
    fn the_next_page_at_the_same_revision_is_known_and_nothing_else() {
        let pages = RangeCountCache::default();
        pages.remember(&page("a", None), &found("a", 3));
        assert_eq!(pages.count(&page("a\0", Some(9))), Some(2));
        assert_eq!(pages.count(&page("a\0", Some(8))), None, "another revision");
        assert_eq!(pages.count(&page("a\0", None)), None, "the newest revision may be another one by now");
        assert_eq!(pages.count(&page("a", Some(9))), None, "another start");
        let last = KeyRange::From(Bytes::from_static(b"a\0"));
        assert_eq!(pages.count(&Range { keys: last, ..page("a\0", Some(9)) }), None, "another end");
        pages.remember(&page("a\0", Some(9)), &found("b", 2));
        assert_eq!(pages.count(&page("b\0", Some(9))), Some(1));
        pages.remember(&page("b\0", Some(9)), &found("c", 1));
        assert_eq!(pages.count(&page("c\0", Some(9))), None, "there was no more");
    }

    #[test]
    fn a_page_in_another_order_or_with_a_filter_says_nothing_of_the_next_one() {
        let pages = RangeCountCache::default();
        let filter = Filter { min_mod: 1, ..Filter::default() };
        pages.remember(&Range { filter, ..page("a", None) }, &found("a", 3));
        let sort = gitcd_mvcc::query::Sort { by: gitcd_mvcc::query::SortBy::Mod, descending: true, after_limit: false };
        pages.remember(&Range { sort: Some(sort), ..page("a", None) }, &found("a", 3));
        assert_eq!(pages.count(&page("a\0", Some(9))), None);
    }
}

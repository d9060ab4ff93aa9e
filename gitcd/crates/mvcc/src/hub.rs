//! The hub, which marks the watchers that a write concerns.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use gitcd_core::revision::Revision;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::index::KeyRange;
use crate::log::Entry;

/// The pending work of one stream: for each of its watchers, the first revision with an event for it.
#[derive(Debug, Default)]
pub struct Mailbox {
    pending: Mutex<Pending>,
    changed: Notify,
    closed: AtomicBool,
}

impl Mailbox {
    /// Marks a watcher for a write; earlier marks are kept.
    pub fn mark(&self, watch: i64, revision: Revision) {
        let mut pending = self.pending.lock();
        let mark = pending.marks.entry(watch).or_insert(Mark { first: revision, last: revision });
        mark.first = mark.first.min(revision);
        mark.last = mark.last.max(revision);
    }

    /// Takes the marks up to `visible`: for each watcher, the first revision with an event for it. Later marks belong to writes
    /// that are not visible yet; they stay, and the stream is woken again when these are.
    pub fn take(&self, visible: Revision) -> Vec<(i64, Revision)> {
        self.pending.lock().take(visible)
    }

    /// Does the same as [`Mailbox::take`] for a sender whose client may be slow: until [`Mailbox::sent`], the taken watchers
    /// count as pending.
    pub fn begin(&self, visible: Revision) -> Vec<(i64, Revision)> {
        let mut pending = self.pending.lock();
        let taken = pending.take(visible);
        pending.in_hand.extend(taken.iter().copied());
        taken
    }

    /// Records that everything below `next` was sent to a watcher, with more to follow.
    pub fn reached(&self, watch: i64, next: Revision) {
        self.pending.lock().in_hand.insert(watch, next);
    }

    /// Records that everything taken for a watcher was sent, or that the watcher was removed.
    pub fn sent(&self, watch: i64) {
        self.pending.lock().in_hand.remove(&watch);
    }

    /// Returns how many watchers have an unsent event at or before `bound`.
    fn before(&self, bound: Revision) -> usize {
        let Pending { marks, in_hand } = &*self.pending.lock();
        let is_begun = |id: &i64| in_hand.get(id).is_some_and(|from| *from <= bound);
        let marked = marks.iter().filter(|(id, mark)| mark.first <= bound && !is_begun(id)).count();
        marked + in_hand.values().filter(|from| **from <= bound).count()
    }

    /// Waits for the next mark (or one since the last wait). Returns false if the server is stopping.
    pub async fn changed(&self) -> bool {
        self.changed.notified().await;
        !self.closed.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
struct Pending {
    marks: HashMap<i64, Mark>,
    /// Taken and being sent.
    in_hand: HashMap<i64, Revision>,
}

impl Pending {
    fn take(&mut self, visible: Revision) -> Vec<(i64, Revision)> {
        let mut taken = Vec::new();
        self.marks.retain(|watch, mark| {
            if mark.first <= visible {
                taken.push((*watch, mark.first));
                mark.first = visible.next();
            }
            mark.last > visible
        });
        taken
    }
}

/// The first and the last write for which a watcher is marked.
#[derive(Debug)]
struct Mark {
    first: Revision,
    last: Revision,
}

#[derive(Debug)]
struct Group {
    watchers: Vec<(Arc<Mailbox>, i64)>,
    /// The last revision that this group was marked for in the batch being published.
    marked: Option<Revision>,
}

#[derive(Debug, Default)]
struct State {
    /// Watchers of single keys are found by their key, whatever their number.
    keys: HashMap<Bytes, Group>,
    /// Watchers of the same range share a group: each event is compared with every range, of which there are a few hundred.
    ranges: HashMap<KeyRange, Group>,
    streams: Vec<std::sync::Weak<Mailbox>>,
    closed: bool,
}

/// The watchers of a branch.
#[derive(Debug, Default)]
pub struct Hub {
    state: Mutex<State>,
    watchers: AtomicUsize,
}

/// A watcher's registration in the hub, removed when dropped.
#[derive(Debug)]
pub struct Registration {
    hub: Arc<Hub>,
    keys: KeyRange,
    mailbox: Arc<Mailbox>,
    watch: i64,
}

impl Hub {
    /// Registers a stream.
    pub fn open(&self) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::default());
        let mut state = self.state.lock();
        mailbox.closed.store(state.closed, Ordering::Release);
        state.streams.retain(|stream| stream.strong_count() > 0);
        state.streams.push(Arc::downgrade(&mailbox));
        mailbox
    }

    /// Registers a watcher. `start` is called while no write is being published: it reads the current revision, and returns the
    /// first revision with an event for the watcher, if there is one.
    pub fn register(
        self: &Arc<Self>,
        keys: KeyRange,
        mailbox: &Arc<Mailbox>,
        watch: i64,
        start: impl FnOnce() -> Option<Revision>,
    ) -> Registration {
        let mut state = self.state.lock();
        let new = || Group { watchers: Vec::new(), marked: None };
        let group = match &keys {
            KeyRange::One(key) => state.keys.entry(key.clone()).or_insert_with(new),
            range => state.ranges.entry(range.clone()).or_insert_with(new),
        };
        group.watchers.push((mailbox.clone(), watch));
        self.watchers.fetch_add(1, Ordering::Relaxed);
        if let Some(from) = start() {
            mailbox.mark(watch, from);
            mailbox.changed.notify_one();
        }
        Registration { hub: self.clone(), keys, mailbox: mailbox.clone(), watch }
    }

    /// Marks all watchers that `entries` concern, then calls `raise`, which makes the entries visible, then wakes the streams. So
    /// a stream that sees the raised revision also finds its marks.
    pub fn publish<'a>(&self, entries: impl Iterator<Item = &'a Entry>, raise: impl FnOnce()) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut touched: Vec<Arc<Mailbox>> = Vec::new();
        if !(state.keys.is_empty() && state.ranges.is_empty()) {
            let mut unmarked: Vec<(&KeyRange, &mut Group)> = state.ranges.iter_mut().collect();
            for entry in entries {
                for change in entry.changes() {
                    let key = &change.version.key;
                    if let Some(group) = state.keys.get(key) {
                        group.mark(entry.revision, &mut touched);
                    }
                    // A group needs only one mark for a batch.
                    unmarked.retain_mut(|(range, group)| {
                        let hit = range.contains(key);
                        if hit {
                            group.marked = Some(entry.revision);
                        }
                        !hit
                    });
                }
            }
            for group in state.ranges.values_mut() {
                if let Some(from) = group.marked.take() {
                    group.mark(from, &mut touched);
                }
            }
        }
        raise();
        for mailbox in touched {
            mailbox.changed.notify_one();
        }
    }

    /// Wakes all streams, since the compaction may have overtaken some of their watchers.
    pub fn compacted(&self) {
        for stream in self.state.lock().streams.iter().filter_map(std::sync::Weak::upgrade) {
            stream.changed.notify_one();
        }
    }

    /// Ends all streams: the server is stopping.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        for stream in state.streams.iter().filter_map(std::sync::Weak::upgrade) {
            stream.closed.store(true, Ordering::Release);
            stream.changed.notify_one();
        }
    }

    /// Returns the number of streams, including those of waiting locks and election candidates.
    pub fn streams(&self) -> usize {
        self.state.lock().streams.iter().filter(|stream| stream.strong_count() > 0).count()
    }

    /// Returns how many watchers have an unsent event that is `revisions` or more behind. Checks every stream.
    pub fn slow(&self, current: Revision, revisions: usize) -> usize {
        let streams: Vec<_> = self.state.lock().streams.iter().filter_map(std::sync::Weak::upgrade).collect();
        let Some(bound) = current.get().checked_sub(revisions as i64).filter(|bound| *bound > 0) else { return 0 };
        streams.into_iter().map(|mailbox| mailbox.before(Revision::new(bound))).sum()
    }

    /// Returns the number of watchers.
    pub fn watchers(&self) -> usize {
        self.watchers.load(Ordering::Relaxed)
    }
}

impl Group {
    fn mark(&self, from: Revision, touched: &mut Vec<Arc<Mailbox>>) {
        for (mailbox, watch) in &self.watchers {
            mailbox.mark(*watch, from);
            if touched.last().is_none_or(|last| !Arc::ptr_eq(last, mailbox)) {
                touched.push(mailbox.clone());
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        let leave = |group: &mut Group| {
            group.watchers.retain(|(mailbox, watch)| *watch != self.watch || !Arc::ptr_eq(mailbox, &self.mailbox));
            group.watchers.is_empty()
        };
        match &self.keys {
            KeyRange::One(key) => {
                if state.keys.get_mut(key).is_some_and(leave) {
                    state.keys.remove(key);
                }
            }
            range => {
                if state.ranges.get_mut(range).is_some_and(leave) {
                    state.ranges.remove(range);
                }
            }
        }
        self.hub.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_for_a_write_that_is_not_visible_yet_stays() {
        let mailbox = Mailbox::default();
        let take = |visible| {
            let mut taken: Vec<_> =
                mailbox.take(Revision::new(visible)).into_iter().map(|(id, r)| (id, r.get())).collect();
            taken.sort_unstable();
            taken
        };
        for (watch, revision) in [(1, 15), (2, 12), (3, 11), (3, 16)] {
            mailbox.mark(watch, Revision::new(revision));
        }
        assert_eq!(take(12), [(2, 12), (3, 11)]);
        assert_eq!(take(12), []);
        mailbox.mark(1, Revision::new(20));
        assert_eq!(take(16), [(1, 15), (3, 13)]);
        assert_eq!(take(20), [(1, 17)]);
        assert_eq!(take(20), []);
    }

    #[test]
    fn who_is_being_sent_something_is_as_far_behind_as_that() {
        let mailbox = Mailbox::default();
        let before = |bound| mailbox.before(Revision::new(bound));
        mailbox.mark(1, Revision::new(3));
        mailbox.mark(2, Revision::new(9));
        assert_eq!((before(2), before(3), before(9)), (0, 1, 2));
        assert_eq!(mailbox.begin(Revision::new(9)).len(), 2);
        assert_eq!((before(2), before(3), before(9)), (0, 1, 2), "nothing was sent yet");
        mailbox.mark(1, Revision::new(10));
        assert_eq!((before(3), before(20)), (1, 2), "each watcher counts once");
        mailbox.reached(1, Revision::new(7));
        assert_eq!((before(6), before(7), before(9)), (0, 1, 2));
        mailbox.sent(2);
        assert_eq!((before(6), before(7), before(9)), (0, 1, 1), "one watcher waits, and the other does not");
        mailbox.sent(1);
        assert_eq!((before(9), before(10)), (0, 1), "the later mark is left");
    }
}

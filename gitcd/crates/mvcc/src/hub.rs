//! The hub, which marks the watchers that a write concerns.

use std::collections::{HashMap, HashSet};
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
        pending.marks.entry(watch).or_insert(Mark::new(revision)).add(revision);
    }

    /// Takes the marks up to `visible`: for each watcher, the first revision with an event for it. Later marks belong to writes
    /// that are not visible yet; they stay, and the stream is woken again when these are.
    pub fn take(&self, visible: Revision) -> HashMap<i64, Revision> {
        self.pending.lock().take(visible)
    }

    /// Does the same as [`Mailbox::take`] for a sender whose client may be slow: until [`Mailbox::sent`], the taken watchers
    /// count as pending.
    pub fn begin(&self, visible: Revision) -> HashMap<i64, Revision> {
        let mut pending = self.pending.lock();
        let taken = pending.take(visible);
        pending.in_hand.extend(&taken);
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
        let Pending { groups, marked: marked_groups, marks, in_hand } = &*self.pending.lock();
        let has = |mark: &Mark| mark.first <= bound;
        let marked = marks.iter().filter(|(_, mark)| has(mark)).map(|(id, _)| *id);
        let members = marked_groups.iter().filter_map(|id| groups.get(id));
        let members = members.filter(|members| members.mark.as_ref().is_some_and(has));
        let begun = in_hand.iter().filter(|(_, from)| **from <= bound).map(|(id, _)| *id);
        members
            .flat_map(|members| members.watchers.iter().copied())
            .chain(marked)
            .chain(begun)
            .collect::<HashSet<_>>()
            .len()
    }

    /// Waits for the next mark (or one since the last wait). Returns false if the server is stopping.
    pub async fn changed(&self) -> bool {
        self.changed.notified().await;
        !self.closed.load(Ordering::Acquire)
    }
}

#[derive(Debug, Default)]
struct Pending {
    /// The stream's watchers of a group, which the writer marks together.
    groups: HashMap<u64, Members>,
    /// The groups that have a mark.
    marked: Vec<u64>,
    marks: HashMap<i64, Mark>,
    /// Taken and being sent.
    in_hand: HashMap<i64, Revision>,
}

impl Pending {
    fn mark_group(&mut self, id: u64, from: Revision) {
        let Some(members) = self.groups.get_mut(&id) else { return };
        if members.mark.is_none() {
            self.marked.push(id);
        }
        members.mark.get_or_insert(Mark::new(from)).add(from);
    }

    fn take(&mut self, visible: Revision) -> HashMap<i64, Revision> {
        let mut taken = HashMap::new();
        self.marked.retain(|id| {
            let Some(Members { watchers, mark }) = self.groups.get_mut(id) else { return false };
            if let Some(first) = mark.as_mut().and_then(|mark| mark.take(visible)) {
                taken.extend(watchers.iter().map(|watch| (*watch, first)));
                *mark = mark.take().filter(|mark| mark.last > visible);
            }
            mark.is_some()
        });
        self.marks.retain(|watch, mark| {
            if let Some(first) = mark.take(visible) {
                // The earlier of both: a watcher that starts in the past has a mark of its own.
                taken.entry(*watch).and_modify(|from| *from = first.min(*from)).or_insert(first);
            }
            mark.last > visible
        });
        taken
    }
}

/// The watchers of a group that belong to one stream.
#[derive(Debug, Default)]
struct Members {
    watchers: Vec<i64>,
    mark: Option<Mark>,
}

/// The first and the last write for which watchers are marked.
#[derive(Debug)]
struct Mark {
    first: Revision,
    last: Revision,
}

impl Mark {
    fn new(revision: Revision) -> Self {
        Self { first: revision, last: revision }
    }

    fn add(&mut self, revision: Revision) {
        self.first = self.first.min(revision);
        self.last = self.last.max(revision);
    }

    /// Returns the first write if it is visible; what remains are the invisible ones.
    fn take(&mut self, visible: Revision) -> Option<Revision> {
        let first = self.first;
        (first <= visible).then(|| {
            self.first = visible.next();
            first
        })
    }
}

/// The watchers of a key or of a range.
#[derive(Debug)]
struct Group {
    id: u64,
    /// By the address of their mailbox.
    streams: HashMap<usize, Arc<Mailbox>>,
    /// The first revision with an event for this group in the batch that is being published.
    marked: Option<Revision>,
}

#[derive(Debug, Default)]
struct State {
    /// Watchers of single keys are found by their key, whatever their number.
    keys: HashMap<Bytes, Group>,
    /// Watchers of the same range share a group: each event is compared with every range, of which there are a few hundred.
    ranges: HashMap<KeyRange, Group>,
    streams: Vec<std::sync::Weak<Mailbox>>,
    /// Number of groups that were ever created.
    groups: u64,
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
        state.groups += 1;
        let new = Group { id: state.groups, streams: HashMap::new(), marked: None };
        let group = match &keys {
            KeyRange::One(key) => state.keys.entry(key.clone()).or_insert(new),
            range => state.ranges.entry(range.clone()).or_insert(new),
        };
        group.join(mailbox, watch);
        self.watchers.fetch_add(1, Ordering::Relaxed);
        if let Some(from) = start() {
            mailbox.mark(watch, from);
            mailbox.changed.notify_one();
        }
        Registration { hub: self.clone(), keys, mailbox: mailbox.clone(), watch }
    }

    /// Marks all watchers that `entries` concern, then calls `raise`, which makes the entries visible, then wakes the streams. So
    /// a stream that sees the raised revision also finds its marks. All entries become visible together: a group gets one mark.
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
    fn join(&mut self, mailbox: &Arc<Mailbox>, watch: i64) {
        self.streams.entry(Arc::as_ptr(mailbox).addr()).or_insert_with(|| mailbox.clone());
        mailbox.pending.lock().groups.entry(self.id).or_default().watchers.push(watch);
    }

    /// Returns whether the group has no watchers left.
    fn leave(&mut self, mailbox: &Arc<Mailbox>, watch: i64) -> bool {
        let mut pending = mailbox.pending.lock();
        if let Some(members) = pending.groups.get_mut(&self.id) {
            members.watchers.retain(|member| *member != watch);
            if members.watchers.is_empty() {
                pending.groups.remove(&self.id);
                self.streams.remove(&Arc::as_ptr(mailbox).addr());
            }
        }
        self.streams.is_empty()
    }

    /// Marks the group's watchers, with one mark for each stream.
    fn mark(&self, from: Revision, touched: &mut Vec<Arc<Mailbox>>) {
        for mailbox in self.streams.values() {
            mailbox.pending.lock().mark_group(self.id, from);
            if touched.last().is_none_or(|last| !Arc::ptr_eq(last, mailbox)) {
                touched.push(mailbox.clone());
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.hub.state.lock();
        let leave = |group: &mut Group| group.leave(&self.mailbox, self.watch);
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::log::Change;
    use crate::version::Version;

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

    fn entry(revision: i64, key: &'static str) -> Entry {
        let revision = Revision::new(revision);
        let version = Arc::new(Version::tombstone(key.into(), revision));
        Entry::new(revision, 0, None, vec![Change { version, previous: None }])
    }

    #[test]
    fn a_stream_s_watchers_of_one_range_are_marked_together_and_a_past_start_stays() {
        let hub = Arc::new(Hub::default());
        let mailbox = hub.open();
        let range = || KeyRange::Span("a".into(), "b".into());
        let register =
            |keys, watch, start: Option<i64>| hub.register(keys, &mailbox, watch, || start.map(Revision::new));
        let taken = |visible| {
            mailbox.take(Revision::new(visible)).into_iter().map(|(id, at)| (id, at.get())).collect::<BTreeMap<_, _>>()
        };
        let (_one, two) = (register(range(), 1, None), register(range(), 2, None));
        let _late = register(range(), 3, Some(4));
        let _key = register(KeyRange::One("other".into()), 4, None);
        let written = [entry(7, "a1"), entry(8, "c"), entry(9, "a2")];
        hub.publish(written.iter(), || ());
        assert_eq!(mailbox.pending.lock().marks.len(), 1, "one watcher starts in the past");
        assert_eq!(taken(6), BTreeMap::from([(3, 4)]), "the others are not visible yet");
        assert_eq!(taken(9), BTreeMap::from([(1, 7), (2, 7), (3, 7)]));
        drop(two);
        hub.publish([entry(10, "a3")].iter(), || ());
        assert_eq!(mailbox.before(Revision::new(10)), 2);
        assert_eq!(taken(10), BTreeMap::from([(1, 10), (3, 10)]));
        assert_eq!(taken(10), BTreeMap::new());
    }

    #[test]
    fn what_no_watcher_uses_is_forgotten() {
        let hub = Arc::new(Hub::default());
        let mailbox = hub.open();
        let keys = KeyRange::Span("a".into(), "b".into());
        let register = |watch| hub.register(keys.clone(), &mailbox, watch, || None);
        let both = [register(1), register(2)];
        hub.publish([entry(2, "a")].iter(), || ());
        drop(both);
        assert!(mailbox.take(Revision::new(2)).is_empty(), "their marks are gone with them");
        assert!(hub.state.lock().ranges.is_empty() && mailbox.pending.lock().groups.is_empty());
    }
}

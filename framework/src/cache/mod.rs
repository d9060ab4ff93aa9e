//! Local copies of the apiserver's objects.
//!
//! A [`Cache`] is filled by a list and a watch. Unlike kube-runtime's store, it gives its [followers](Cache::follow) the old
//! and the new object, reports nothing if an object is unchanged, and reports deletions that the watch missed: a list after a
//! gap is compared with the cache.
//!
//! An invalid object does not match its type, because the schema is looser or the stored object is newer than the program. It
//! is left out, as if it did not exist; other objects are not affected. It appears in the log and in a metric, and in an
//! event if a controller reconciles its kind.
//!
//! [`Caches`] has one cache for each kind and selector, shared by all controllers.

mod event;
mod index;
mod objects;
mod on_demand;
mod packed;
mod reflector;
mod registry;
mod selector;
mod source;
#[cfg(test)]
mod tests;
mod text;
mod trouble;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;

pub(crate) use self::event::InvalidObject;
use self::event::{Event, Fits, Read};
pub use self::index::Index;
pub(crate) use self::objects::{CachedObject, Fingerprint};
use self::objects::{Objects, Put};
pub use self::on_demand::OnDemand;
use self::packed::Packed;
pub(crate) use self::registry::ANSWER_LIMIT;
pub use self::registry::{Caches, Scope};
use self::selector::Labels;
pub use self::selector::Selector;
use crate::{Key, Kind, Object};

/// An object that was added, changed or removed.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The old object; `None` if it is new.
    pub before: Option<&'a K>,
    /// The new object; `None` if it was deleted.
    pub after: Option<&'a K>,
    /// It is from the first list.
    pub initial: bool,
}

impl<K> Change<'_, K> {
    /// Returns the new object, or the old one if it was deleted.
    ///
    /// # Panics
    /// Never: a change has at least one of the two.
    pub fn object(&self) -> &K {
        self.after.or(self.before).expect("a change has an object")
    }
}

type Callback<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

struct Follower<K> {
    notify: Callback<K>,
    /// Whether it receives the objects of the first list.
    initial: bool,
}

/// The objects of one kind, without their `managedFields`. May lag behind the apiserver.
///
/// Objects are stored as the JSON that the apiserver sent, in a third or a quarter of the memory. Each read decodes the
/// object again, in some microseconds, so keep an object that you use several times.
pub struct Cache<K: Resource> {
    kind: Kind<K>,
    objects: RwLock<Objects<K>>,
    followers: Mutex<Vec<Follower<K>>>,
    /// Number of watches whose first list is not complete.
    lacking: watch::Sender<usize>,
    /// Number of invalid objects.
    misfits: Gauge,
    /// Notifies of new invalid objects.
    misfit: watch::Sender<()>,
    /// The namespaces that the watches cover.
    scope: Scope,
    selects: bool,
    selects_fields: bool,
    /// The labels of the selector, if they can be evaluated here.
    labels: Option<Labels>,
}

/// What one watch has listed so far.
#[derive(Debug)]
struct Listing<K> {
    /// The namespace of the list, in which missing objects are gone; `None` if it lists all namespaces.
    namespace: Option<String>,
    objects: HashMap<Key, CachedObject<K>>,
    misfits: HashMap<Key, InvalidObject>,
    /// How many responses to writes the cache had stored when the list began.
    learned: u64,
    complete: bool,
}

impl<K> Listing<K> {
    fn of(namespace: Option<String>) -> Self {
        Self { namespace, objects: HashMap::new(), misfits: HashMap::new(), learned: 0, complete: false }
    }
}

impl<K: Object> Cache<K> {
    fn new(kind: Kind<K>, watches: usize) -> Self {
        let lacking = watch::channel(watches).0;
        Self {
            kind,
            objects: RwLock::default(),
            followers: Mutex::default(),
            lacking,
            misfits: Gauge::default(),
            misfit: watch::Sender::default(),
            scope: Scope::All,
            selects: false,
            selects_fields: false,
            labels: None,
        }
    }

    fn limited(self, scope: &Scope, selector: &Selector) -> Self {
        let selects = !selector.is_all();
        let labels = selector.labels.as_deref().filter(|_| selector.fields.is_none()).and_then(Labels::parse);
        Self { scope: scope.clone(), selects, selects_fields: selector.fields.is_some(), labels, ..self }
    }

    fn counted(self, misfits: Gauge) -> Self {
        Self { misfits, ..self }
    }

    /// Returns the kind of the objects.
    pub fn kind(&self) -> &Kind<K> {
        &self.kind
    }

    /// Returns an object, if the cache has it.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let packed = self.read().get(key).cloned();
        packed.map(|packed| packed.object())
    }

    /// Returns all objects, in no order. Decodes each.
    pub fn all(&self) -> Vec<Arc<K>> {
        let packed: Vec<_> = self.read().iter().map(|(_, packed)| packed.clone()).collect();
        packed.iter().map(Packed::object).collect()
    }

    /// Returns the keys of all objects, in no order.
    pub fn keys(&self) -> Vec<Key> {
        self.read().iter().map(|(key, _)| key.clone()).collect()
    }

    /// Returns the objects whose controlling owner has this uid, in no order. The cost depends only on their number.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let packed: Vec<_> = self.read().owned_by(uid).cloned().collect();
        packed.iter().map(Packed::object).collect()
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the cache has only objects with certain labels.
    pub(crate) fn is_selecting(&self) -> bool {
        self.selects
    }

    /// Waits until each watch has completed its first list.
    pub async fn synced(&self) {
        let mut lacking = self.lacking.subscribe();
        // Cannot fail: we own the sender.
        let _open = lacking.wait_for(|lacking| *lacking == 0).await;
    }

    /// Returns whether [`synced`](Self::synced) would return immediately.
    pub fn is_synced(&self) -> bool {
        *self.lacking.borrow() == 0
    }

    /// Calls `notify` with every change from now on, in order, after the cache has it. It must not block, nor follow
    /// this cache: the watch waits for it.
    pub fn follow(&self, notify: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { notify: Box::new(notify), initial: true });
    }

    /// As [`follow`](Self::follow) without the objects of the first list, which then need not be decoded.
    pub(crate) fn follow_later(&self, notify: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { notify: Box::new(notify), initial: false });
    }

    fn add(&self, follower: Follower<K>) {
        self.followers().push(follower);
    }

    /// Locks the followers. Hold the lock from before a change until they are notified, so that they see changes in order
    /// even if a reconcile learns a response meanwhile.
    fn followers(&self) -> MutexGuard<'_, Vec<Follower<K>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, event: Event<K>, listing: &mut Listing<K>) {
        let followers = &*self.followers();
        match event {
            Event::Apply(Read::Fits(fits)) => {
                let Fits { key, object, known } = *fits;
                let put = self.write(|objects| {
                    objects.delivered(known.version());
                    (!objects.is_outdated(&key, known.version())).then(|| objects.put(key, known))
                });
                notify_of_put(followers, put, &object);
            }
            Event::Apply(Read::InvalidObject(misfit)) => {
                let left_out = self.write(|objects| {
                    objects.delivered(misfit.number());
                    let is_outdated = objects.is_outdated(&misfit.key, misfit.number());
                    (!is_outdated).then(|| objects.leave_out(misfit.clone()))
                });
                let Some((is_news, before)) = left_out else { return };
                if is_news {
                    self.report(&misfit);
                }
                if before.is_some() {
                    notify(followers, before.as_ref(), None, false);
                }
            }
            Event::Delete(key, version) => {
                let before = self.write(|objects| {
                    objects.delivered(version);
                    // Unless the cache already has an object that we created in its place.
                    (!objects.is_outdated(&key, version)).then(|| objects.remove(&key)).flatten()
                });
                if before.is_some() {
                    notify(followers, before.as_ref(), None, false);
                }
            }
            Event::Init => {
                (listing.objects, listing.misfits) = (HashMap::new(), HashMap::new());
                listing.learned = self.read().learned();
            }
            Event::InitApply(Read::Fits(fits)) => {
                listing.misfits.remove(&fits.key);
                listing.objects.insert(fits.key, fits.known);
            }
            Event::InitApply(Read::InvalidObject(misfit)) => {
                listing.objects.remove(&misfit.key);
                listing.misfits.insert(misfit.key.clone(), misfit);
            }
            Event::InitDelete(key) => {
                listing.objects.remove(&key);
                listing.misfits.remove(&key);
            }
            Event::InitDone(version) => self.replace(followers, listing, version),
        }
    }

    /// Replaces the objects in the cache with those of a complete list, except those that were written while it was read: the
    /// watch, which starts at the version of the list, confirms them.
    fn replace(&self, followers: &[Follower<K>], listing: &mut Listing<K>, version: Option<u64>) {
        let (listed, misfits) = (std::mem::take(&mut listing.objects), std::mem::take(&mut listing.misfits));
        let initial = !std::mem::replace(&mut listing.complete, true);
        let ours = |key: &Key| listing.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
        let learned = listing.learned;
        let (news, gone, changed) = self.write(|objects| {
            objects.listed();
            listed.values().for_each(|known| objects.delivered(known.version()));
            misfits.values().for_each(|misfit| objects.delivered(misfit.number()));
            objects.keep_misfits(|key| !ours(key) || misfits.contains_key(key));
            let missing = |key: &Key| ours(key) && !listed.contains_key(key) && !misfits.contains_key(key);
            let missing = |key: &Key| missing(key) && !objects.is_later(key, learned, version);
            let missing: Vec<_> = objects.iter().map(|(key, _)| key).filter(|key| missing(key)).cloned().collect();
            let mut gone: Vec<_> = missing.iter().filter_map(|key| objects.remove(key)).collect();
            let mut news = Vec::new();
            let misfits: Vec<_> =
                misfits.into_values().filter(|misfit| !objects.is_later(&misfit.key, learned, version)).collect();
            for misfit in misfits {
                let (is_news, before) = objects.leave_out(misfit.clone());
                news.extend(is_news.then_some(misfit));
                gone.extend(before);
            }
            let mut changed = Vec::new();
            for (key, known) in listed {
                if objects.is_later(&key, learned, version) {
                    continue;
                }
                let after = known.object().clone();
                match objects.put(key, known) {
                    Put::New => changed.push((None, after)),
                    Put::InsteadOf(before) => changed.push((Some(before), after)),
                    Put::Same => {}
                }
            }
            (news, gone, changed)
        });
        news.iter().for_each(|misfit| self.report(misfit));
        for before in gone {
            notify(followers, Some(&before), None, false);
        }
        let wants_initial = followers.iter().any(|one| one.initial);
        for (before, after) in changed.iter().filter(|_| wants_initial || !initial) {
            notify(followers, before.as_ref(), Some(&*after.object()), initial);
        }
        if initial {
            self.lacking.send_modify(|lacking| *lacking = lacking.saturating_sub(1));
        }
    }

    /// Logs an invalid object, once for each version.
    fn report(&self, misfit: &InvalidObject) {
        let (kind, InvalidObject { key, version, why, .. }) = (self.kind.name(), misfit);
        tracing::warn!(%kind, object = %key, version, why, "skipped an object that its type cannot represent");
        self.misfit.send_replace(());
    }

    /// Returns the invalid objects.
    pub(crate) fn misfits(&self) -> Vec<InvalidObject> {
        self.read().misfits().values().cloned().collect()
    }

    /// Returns a receiver of notifications about new [invalid objects](Self::misfits).
    pub(crate) fn another_misfit(&self) -> watch::Receiver<()> {
        self.misfit.subscribe()
    }

    /// Returns an object with what is stored beside it.
    pub(crate) fn known(&self, key: &Key) -> Option<CachedObject<K>> {
        self.read().known(key).cloned()
    }

    /// Returns whether the object with this owner was found to match `wanted`, and has not changed since.
    pub(crate) fn is_settled(&self, key: &Key, owner: Option<&str>, wanted: Fingerprint) -> bool {
        self.read().known(key).is_some_and(|known| known.owner() == owner && known.settled() == Some(wanted))
    }

    /// Records that this object, if it is still current, matches `wanted`.
    pub(crate) fn settle(&self, key: &Key, object: &CachedObject<K>, wanted: Fingerprint) {
        self.write(|objects| objects.settle(key, object.object(), wanted));
    }

    /// Returns the number of lists so far. [`learn`](Self::learn) needs it from before the write.
    pub(crate) fn lists(&self) -> u64 {
        self.read().lists()
    }

    /// Stores the response to a write, until the watch delivers something newer. Otherwise a second write in a row would be
    /// compared with the object from before the first.
    pub(crate) fn learn(&self, written: K, lists: u64) {
        let Fits { key, object, known } = Fits::learned(written);
        let followers = &*self.followers();
        let put = self.write(|objects| {
            let is_needed = self.selects && self.labels.is_none();
            let shown = is_needed.then(|| objects.get(&key).map(Packed::object)).flatten();
            let learns = objects.may_learn(known.version(), lists)
                && !objects.is_outdated(&key, known.version())
                && self.is_watched(&object, shown.as_deref());
            learns.then(|| objects.learn(key, known))
        });
        notify_of_put(followers, put, &object);
    }

    /// Removes an object that the apiserver no longer has, before the watch reports its deletion; not another one of that name.
    pub(crate) fn learn_deletion(&self, key: &Key, uid: Option<&str>) {
        let followers = &*self.followers();
        let before = self.write(|objects| {
            let is_there = objects.known(key).is_some_and(|known| known.uid() == uid);
            is_there.then(|| objects.remove(key)).flatten()
        });
        if before.is_some() {
            notify(followers, before.as_ref(), None, false);
        }
    }

    /// Returns whether a watch covers the object. Otherwise changes and deletions of it would not be noticed.
    fn is_watched(&self, object: &K, known: Option<&K>) -> bool {
        let in_scope = match (&self.scope, object.meta().namespace.as_ref()) {
            (Scope::Namespaces(names), Some(namespace)) => names.contains(namespace),
            _ => true,
        };
        // If only the apiserver can evaluate the selector, an object stays selected as long as its labels do not change.
        let same = |known: &K| (&known.meta().uid, &known.meta().labels) == (&object.meta().uid, &object.meta().labels);
        let is_selected = match &self.labels {
            Some(labels) => labels.select(object.meta().labels.as_ref()),
            // A write may change a selected field.
            None if self.selects_fields => false,
            None => !self.selects || known.is_some_and(same),
        };
        in_scope && is_selected
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, change: impl FnOnce(&mut Objects<K>) -> T) -> T {
        let objects = &mut *self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let before = objects.misfits().len();
        let outcome = change(objects);
        // Several caches of one kind share the gauge.
        self.misfits.inc_by(objects.misfits().len() as i64 - before as i64);
        outcome
    }
}

impl<K: Resource> std::fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("lacking", &*self.lacking.borrow()).finish_non_exhaustive()
    }
}

fn notify_of_put<K: Object>(followers: &[Follower<K>], put: Option<Put<K>>, after: &K) {
    match put {
        Some(Put::New) => notify(followers, None, Some(after), false),
        Some(Put::InsteadOf(before)) => notify(followers, Some(&before), Some(after), false),
        Some(Put::Same) | None => {}
    }
}

/// Notifies the followers of a change.
fn notify<K: Object>(followers: &[Follower<K>], before: Option<&Packed<K>>, after: Option<&K>, initial: bool) {
    if followers.is_empty() {
        return;
    }
    let before = before.map(Packed::object);
    let change = Change { before: before.as_deref(), after, initial };
    for follower in followers.iter().filter(|follower| follower.initial || !initial) {
        (follower.notify)(&change);
    }
}

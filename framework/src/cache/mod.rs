//! What the apiserver has, as far as it is watched.
//!
//! A [`Cache`] is filled by a list and a watch. It differs from kube-runtime's store in what it tells those who
//! [follow](Cache::follow) it: they get both the old and the new object, nothing if the object is the same, and they learn of
//! objects that vanished while nobody watched: a list after a gap is compared with what was known.
//!
//! An object that does not fit its type, since the schema is looser or the program older than what is stored, is left out, as if it were not there,
//! and the others are worked with. It is a line in the log and a figure, and an event about it if its kind is that of a controller.
//!
//! [`Caches`] holds one for each kind and selector, however many controllers use it.

mod event;
mod feed;
mod objects;
mod packed;
mod registry;
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

pub(crate) use self::event::Misfit;
use self::event::{Event, Fits, Read};
pub(crate) use self::objects::{Fingerprint, Known};
use self::objects::{Objects, Put};
use self::packed::Packed;
pub(crate) use self::registry::ANSWER_LIMIT;
pub use self::registry::{Caches, Scope};
use crate::{Key, Kind, Object};

/// An object that was added, changed or removed.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// As it was; `None` if it is new.
    pub before: Option<&'a K>,
    /// As it is; `None` if it is gone.
    pub after: Option<&'a K>,
    /// It was there before anybody looked.
    pub initial: bool,
}

impl<K> Change<'_, K> {
    /// The object as it is, or was last.
    ///
    /// # Panics
    /// Never: one of the two is there.
    pub fn object(&self) -> &K {
        self.after.or(self.before).expect("a change has an object")
    }
}

type Tell<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

struct Follower<K> {
    tell: Tell<K>,
    /// Whether it wants to know what was there to begin with.
    initial: bool,
}

/// Objects of one kind, without their `managedFields`. It may lag behind the apiserver.
///
/// They are kept as the JSON that the apiserver sent, which takes a third or a quarter of the room. An object is read anew whenever it is asked for, in some
/// microseconds; so who looks at one several times keeps it.
pub struct Cache<K: Resource> {
    kind: Kind<K>,
    objects: RwLock<Objects<K>>,
    followers: Mutex<Vec<Follower<K>>>,
    /// How many of the watches that fill it have not been complete yet.
    lacking: watch::Sender<usize>,
    /// How many objects do not fit their type.
    misfits: Gauge,
    /// Moves when there is another one of these.
    misfit: watch::Sender<()>,
    /// Which objects they tell of.
    scope: Scope,
    selects: bool,
}

/// What one watch has listed so far.
#[derive(Debug)]
struct Listing<K> {
    /// Whose objects are missing from a list are gone; `None` if it lists all namespaces.
    namespace: Option<String>,
    objects: HashMap<Key, Known<K>>,
    misfits: HashMap<Key, Misfit>,
    complete: bool,
}

impl<K> Listing<K> {
    fn of(namespace: Option<String>) -> Self {
        Self { namespace, objects: HashMap::new(), misfits: HashMap::new(), complete: false }
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
        }
    }

    fn limited(self, scope: &Scope, selects: bool) -> Self {
        Self { scope: scope.clone(), selects, ..self }
    }

    fn counted(self, misfits: Gauge) -> Self {
        Self { misfits, ..self }
    }

    /// Which kind they are.
    pub fn kind(&self) -> &Kind<K> {
        &self.kind
    }

    /// An object, if it is known.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        let packed = self.read().get(key).cloned();
        packed.map(|packed| packed.object())
    }

    /// All objects, in no order. Costs the reading of each.
    pub fn all(&self) -> Vec<Arc<K>> {
        let packed: Vec<_> = self.read().iter().map(|(_, packed)| packed.clone()).collect();
        packed.iter().map(Packed::object).collect()
    }

    /// The keys of all objects, in no order.
    pub fn keys(&self) -> Vec<Key> {
        self.read().iter().map(|(key, _)| key.clone()).collect()
    }

    /// The objects whose controlling owner has this uid, in no order. Costs as much as there are.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let packed: Vec<_> = self.read().owned_by(uid).cloned().collect();
        packed.iter().map(Packed::object).collect()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until everything is known that was there when the watches began.
    pub async fn synced(&self) {
        let mut lacking = self.lacking.subscribe();
        // The sender is ours.
        let _open = lacking.wait_for(|lacking| *lacking == 0).await;
    }

    /// Whether [`synced`](Self::synced) would return at once.
    pub fn is_synced(&self) -> bool {
        *self.lacking.borrow() == 0
    }

    /// Calls `tell` with every change from now on, in order, when the cache has it. It must not block, nor follow this cache too: the watch waits for it.
    pub fn follow(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { tell: Box::new(tell), initial: true });
    }

    /// [`follow`](Self::follow) without what was there to begin with, which then need not be read.
    pub(crate) fn follow_later(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { tell: Box::new(tell), initial: false });
    }

    fn add(&self, follower: Follower<K>) {
        self.followers().push(follower);
    }

    /// Who changes something holds them from before that until they are told: they are told in the order of the changes, also if a reconcile learns something
    /// while the watch tells.
    fn followers(&self) -> MutexGuard<'_, Vec<Follower<K>>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, event: Event<K>, listing: &mut Listing<K>) {
        let followers = &*self.followers();
        match event {
            Event::Apply(Read::Fits(fits)) => {
                let Fits { key, object, known } = *fits;
                let put = self.write(|objects| {
                    objects.told(known.version());
                    (!objects.is_outdated(&key, known.version())).then(|| objects.put(key, known))
                });
                tell_of(followers, put, &object);
            }
            Event::Apply(Read::Misfit(misfit)) => {
                let left_out = self.write(|objects| {
                    objects.told(misfit.number());
                    let is_outdated = objects.is_outdated(&misfit.key, misfit.number());
                    (!is_outdated).then(|| objects.leave_out(misfit.clone()))
                });
                let Some((is_news, before)) = left_out else { return };
                if is_news {
                    self.report(&misfit);
                }
                if before.is_some() {
                    tell(followers, before.as_ref(), None, false);
                }
            }
            Event::Delete(key, version) => {
                let before = self.write(|objects| {
                    objects.told(version);
                    // One that we made in its place is there.
                    (!objects.is_outdated(&key, version)).then(|| objects.remove(&key)).flatten()
                });
                if before.is_some() {
                    tell(followers, before.as_ref(), None, false);
                }
            }
            Event::Init => (listing.objects, listing.misfits) = (HashMap::new(), HashMap::new()),
            Event::InitApply(Read::Fits(fits)) => drop(listing.objects.insert(fits.key, fits.known)),
            Event::InitApply(Read::Misfit(misfit)) => drop(listing.misfits.insert(misfit.key.clone(), misfit)),
            Event::InitDone => self.replace(followers, listing),
        }
    }

    /// Takes a whole list for what is there.
    fn replace(&self, followers: &[Follower<K>], listing: &mut Listing<K>) {
        let (listed, misfits) = (std::mem::take(&mut listing.objects), std::mem::take(&mut listing.misfits));
        let initial = !std::mem::replace(&mut listing.complete, true);
        let ours = |key: &Key| listing.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
        let (news, gone, changed) = self.write(|objects| {
            objects.listed();
            listed.values().for_each(|known| objects.told(known.version()));
            misfits.values().for_each(|misfit| objects.told(misfit.number()));
            objects.keep_misfits(|key| !ours(key) || misfits.contains_key(key));
            let missing = |key: &Key| ours(key) && !listed.contains_key(key) && !misfits.contains_key(key);
            let missing: Vec<_> = objects.iter().map(|(key, _)| key).filter(|key| missing(key)).cloned().collect();
            let mut gone: Vec<_> = missing.iter().filter_map(|key| objects.remove(key)).collect();
            let mut news = Vec::new();
            for misfit in misfits.into_values() {
                let (is_news, before) = objects.leave_out(misfit.clone());
                news.extend(is_news.then_some(misfit));
                gone.extend(before);
            }
            let mut changed = Vec::new();
            for (key, known) in listed {
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
            tell(followers, Some(&before), None, false);
        }
        let told = followers.iter().any(|one| one.initial);
        for (before, after) in changed.iter().filter(|_| told || !initial) {
            tell(followers, before.as_ref(), Some(&*after.object()), initial);
        }
        if initial {
            self.lacking.send_modify(|lacking| *lacking = lacking.saturating_sub(1));
        }
    }

    /// Says once of each version that it is left out.
    fn report(&self, misfit: &Misfit) {
        let (kind, Misfit { key, version, why, .. }) = (self.kind.name(), misfit);
        tracing::warn!(%kind, object = %key, version, why, "skipped an object that its type cannot represent");
        self.misfit.send_replace(());
    }

    /// What is there and does not fit its type.
    pub(crate) fn misfits(&self) -> Vec<Misfit> {
        self.read().misfits().values().cloned().collect()
    }

    /// Moves when there is another [misfit](Self::misfits).
    pub(crate) fn another_misfit(&self) -> watch::Receiver<()> {
        self.misfit.subscribe()
    }

    /// An object with what is known of it.
    pub(crate) fn known(&self, key: &Key) -> Option<Known<K>> {
        self.read().known(key).cloned()
    }

    /// Whether an object that this owner controls was found to be as `wanted`, and has not changed since.
    pub(crate) fn is_settled(&self, key: &Key, owner: Option<&str>, wanted: Fingerprint) -> bool {
        self.read().known(key).is_some_and(|known| known.owner() == owner && known.settled() == Some(wanted))
    }

    /// Takes note that this object, if it is still what is there, is as `wanted`.
    pub(crate) fn settle(&self, key: &Key, object: &Known<K>, wanted: Fingerprint) {
        self.write(|objects| objects.settle(key, object.object(), wanted));
    }

    /// What [`learn`](Self::learn) wants to know from before a write.
    pub(crate) fn lists(&self) -> u64 {
        self.read().lists()
    }

    /// Takes the answer to a write for what is there, until the watch tells more. Otherwise who writes twice in a row would look at what
    /// was there before the first.
    pub(crate) fn learn(&self, written: K, lists: u64) {
        let Fits { key, object, known } = Fits::learned(written);
        let followers = &*self.followers();
        let put = self.write(|objects| {
            let shown = self.selects.then(|| objects.get(&key).map(Packed::object)).flatten();
            let learns = objects.may_learn(known.version(), lists)
                && !objects.is_outdated(&key, known.version())
                && self.is_watched(&object, shown.as_deref());
            learns.then(|| objects.put(key, known))
        });
        tell_of(followers, put, &object);
    }

    /// Whether a watch will tell what becomes of an object. Of others nobody would learn that they changed, or went.
    fn is_watched(&self, object: &K, known: Option<&K>) -> bool {
        let in_scope = match (&self.scope, object.meta().namespace.as_ref()) {
            (Scope::Namespaces(names), Some(namespace)) => names.contains(namespace),
            _ => true,
        };
        // The apiserver reads the selector, so what it selected is selected as long as its labels are the same.
        let same = |known: &K| (&known.meta().uid, &known.meta().labels) == (&object.meta().uid, &object.meta().labels);
        in_scope && (!self.selects || known.is_some_and(same))
    }

    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write<T>(&self, change: impl FnOnce(&mut Objects<K>) -> T) -> T {
        let objects = &mut *self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let before = objects.misfits().len();
        let outcome = change(objects);
        // Several caches of one kind have one figure.
        self.misfits.inc_by(objects.misfits().len() as i64 - before as i64);
        outcome
    }
}

impl<K: Resource> std::fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("lacking", &*self.lacking.borrow()).finish_non_exhaustive()
    }
}

fn tell_of<K: Object>(followers: &[Follower<K>], put: Option<Put<K>>, after: &K) {
    match put {
        Some(Put::New) => tell(followers, None, Some(after), false),
        Some(Put::InsteadOf(before)) => tell(followers, Some(&before), Some(after), false),
        Some(Put::Same) | None => {}
    }
}

/// Tells of two versions that are not the same.
fn tell<K: Object>(followers: &[Follower<K>], before: Option<&Packed<K>>, after: Option<&K>, initial: bool) {
    if followers.is_empty() {
        return;
    }
    let before = before.map(Packed::object);
    let change = Change { before: before.as_deref(), after, initial };
    for follower in followers.iter().filter(|follower| follower.initial || !initial) {
        (follower.tell)(&change);
    }
}

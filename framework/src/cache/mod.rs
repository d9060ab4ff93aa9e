//! What the apiserver has, as far as it is watched.
//!
//! A [`Cache`] is filled by kube-runtime's watcher. It differs from kube-runtime's store in what it tells those who
//! [follow](Cache::follow) it: they get both the old and the new object, nothing if the object is the same, and they learn of
//! objects that vanished while nobody watched: a list after a gap is compared with what was known.
//!
//! [`Caches`] holds one for each kind and selector, however many controllers use it.

mod feed;
mod objects;
mod packed;
mod registry;
mod trouble;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use kube::Resource;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

pub(crate) use self::objects::{Fingerprint, Known};
use self::objects::{Objects, version};
use self::packed::Packed;
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
/// They are kept as JSON, which takes a third or a quarter of the room. An object is read anew whenever it is asked for, in some microseconds; so who
/// looks at one several times keeps it.
pub struct Cache<K: Resource> {
    kind: Kind<K>,
    objects: RwLock<Objects<K>>,
    followers: Mutex<Vec<Follower<K>>>,
    /// How many of the watches that fill it have not been complete yet.
    lacking: watch::Sender<usize>,
    /// Which objects they tell of.
    scope: Scope,
    selects: bool,
}

/// What one watch has listed so far.
#[derive(Debug, Default)]
struct Listing<K> {
    /// Whose objects are missing from a list are gone; `None` if it lists all namespaces.
    namespace: Option<String>,
    objects: HashMap<Key, Known<K>>,
    complete: bool,
}

impl<K: Object> Cache<K> {
    fn new(kind: Kind<K>, watches: usize) -> Self {
        let lacking = watch::channel(watches).0;
        Self {
            kind,
            objects: RwLock::default(),
            followers: Mutex::default(),
            lacking,
            scope: Scope::All,
            selects: false,
        }
    }

    fn limited(self, scope: &Scope, selects: bool) -> Self {
        Self { scope: scope.clone(), selects, ..self }
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

    /// Calls `tell` with every change from now on, in order, when the cache has it. It must not block: the watch waits for it.
    pub fn follow(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { tell: Box::new(tell), initial: true });
    }

    /// [`follow`](Self::follow) without what was there to begin with, which then need not be read.
    pub(crate) fn follow_later(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.add(Follower { tell: Box::new(tell), initial: false });
    }

    fn add(&self, follower: Follower<K>) {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).push(follower);
    }

    fn apply(&self, event: Event<K>, listing: &mut Listing<K>) {
        match event {
            Event::Apply(object) => {
                let (key, object, known) = kept(object);
                let after = known.object().clone();
                let before = self.write(|objects| {
                    objects.told(known.version());
                    (!objects.is_outdated(&key, &known)).then(|| objects.insert(key, known))
                });
                if let Some(before) = before.filter(|before| before.as_ref() != Some(&after)) {
                    self.tell(before.as_ref(), Some(&object), false);
                }
            }
            Event::Delete(object) => {
                let before = self.write(|objects| {
                    objects.told(version(&object));
                    objects.remove(&Key::of(&object))
                });
                if before.is_some() {
                    self.tell(before.as_ref(), None, false);
                }
            }
            Event::Init => listing.objects = HashMap::new(),
            Event::InitApply(object) => {
                let (key, _, known) = kept(object);
                listing.objects.insert(key, known);
            }
            Event::InitDone => self.replace(listing),
        }
    }

    /// Takes a whole list for what is there.
    fn replace(&self, listing: &mut Listing<K>) {
        let listed = std::mem::take(&mut listing.objects);
        let initial = !std::mem::replace(&mut listing.complete, true);
        let ours = |key: &Key| listing.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace));
        let (gone, changed) = self.write(|objects| {
            objects.listed();
            listed.values().for_each(|known| objects.told(known.version()));
            let missing = |key: &Key| ours(key) && !listed.contains_key(key);
            let missing: Vec<_> = objects.iter().map(|(key, _)| key).filter(|key| missing(key)).cloned().collect();
            let gone: Vec<_> = missing.iter().filter_map(|key| objects.remove(key)).collect();
            let mut changed = Vec::new();
            for (key, known) in listed {
                let after = known.object().clone();
                let before = objects.insert(key, known);
                if before.as_ref() != Some(&after) {
                    changed.push((before, after));
                }
            }
            (gone, changed)
        });
        for before in gone {
            self.tell(Some(&before), None, false);
        }
        let told = self.followers.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|one| one.initial);
        for (before, after) in changed.iter().filter(|_| told || !initial) {
            self.tell(before.as_ref(), Some(&*after.object()), initial);
        }
        if initial {
            self.lacking.send_modify(|lacking| *lacking = lacking.saturating_sub(1));
        }
    }

    /// An object with what is known of it.
    pub(crate) fn known(&self, key: &Key) -> Option<Known<K>> {
        self.read().known(key).cloned()
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
        let (key, object, known) = kept(written);
        let after = known.object().clone();
        let before = self.write(|objects| {
            let shown = self.selects.then(|| objects.get(&key).map(packed::Packed::object)).flatten();
            let learns = objects.may_learn(known.version(), lists)
                && !objects.is_outdated(&key, &known)
                && self.is_watched(&object, shown.as_deref());
            learns.then(|| objects.insert(key, known))
        });
        if let Some(before) = before.filter(|before| before.as_ref() != Some(&after)) {
            self.tell(before.as_ref(), Some(&object), false);
        }
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
        change(&mut self.objects.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Tells of two versions that are not the same.
    fn tell(&self, before: Option<&Packed<K>>, after: Option<&K>, initial: bool) {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if followers.is_empty() {
            return;
        }
        let before = before.map(Packed::object);
        let change = Change { before: before.as_deref(), after, initial };
        for follower in followers.iter().filter(|follower| follower.initial || !initial) {
            (follower.tell)(&change);
        }
    }
}

impl<K: Resource> std::fmt::Debug for Cache<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("lacking", &*self.lacking.borrow()).finish_non_exhaustive()
    }
}

/// What is kept of an object: who manages which field is often half of it, and nobody asks.
fn kept<K: Object>(mut object: K) -> (Key, K, Known<K>) {
    object.meta_mut().managed_fields = None;
    let known = Known::of(&object);
    (Key::of(&object), object, known)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt;

    use super::*;

    fn map(namespace: &str, name: &str, version: u32) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some(namespace.to_owned());
        map.metadata.name = Some(name.to_owned());
        map.metadata.resource_version = Some(version.to_string());
        map.metadata.managed_fields = Some(Vec::new());
        map
    }

    fn list(cache: &Cache<ConfigMap>, listing: &mut Listing<ConfigMap>, objects: Vec<ConfigMap>) {
        cache.apply(Event::Init, listing);
        objects.into_iter().for_each(|object| cache.apply(Event::InitApply(object), listing));
        cache.apply(Event::InitDone, listing);
    }

    /// A cache, and what it has told, as `name: old version -> new version`.
    fn followed(watches: usize) -> (Cache<ConfigMap>, Arc<Mutex<Vec<String>>>) {
        let (cache, told) = (Cache::<ConfigMap>::new(Kind::known(), watches), Arc::new(Mutex::new(Vec::new())));
        let tells = told.clone();
        cache.follow(move |change| {
            let version = |map: Option<&ConfigMap>| map.and_then(ResourceExt::resource_version).unwrap_or_default();
            let text =
                format!("{}: {} -> {}", change.object().name_any(), version(change.before), version(change.after));
            tells.lock().unwrap().push(if change.initial { format!("initial {text}") } else { text });
        });
        (cache, told)
    }

    fn take(told: &Mutex<Vec<String>>) -> Vec<String> {
        let mut told = std::mem::take(&mut *told.lock().unwrap());
        told.sort();
        told
    }

    #[test]
    fn a_list_after_a_gap_tells_what_vanished_changed_and_appeared_and_nothing_else() {
        let ((cache, told), mut listing) = (followed(1), Listing::default());
        list(&cache, &mut listing, vec![map("x", "a", 1), map("x", "b", 2), map("x", "c", 3)]);
        assert_eq!(take(&told), ["initial a:  -> 1", "initial b:  -> 2", "initial c:  -> 3"]);
        list(&cache, &mut listing, vec![map("x", "b", 2), map("x", "c", 4), map("x", "d", 5)]);
        assert_eq!(take(&told), ["a: 1 -> ", "c: 3 -> 4", "d:  -> 5"]);
        assert_eq!((cache.len(), cache.get(&Key::namespaced("x", "a"))), (3, None));
        assert!(cache.all().iter().all(|map| map.metadata.managed_fields.is_none()));
    }

    #[test]
    fn what_was_as_wanted_is_so_until_there_is_another_version() {
        let (cache, key) = (Cache::new(Kind::known(), 1), Key::namespaced("x", "a"));
        let mut listing = Listing::default();
        let settled = |cache: &Cache<ConfigMap>| cache.known(&key).and_then(|known| known.settled());
        list(&cache, &mut listing, vec![map("x", "a", 1)]);
        let object = cache.known(&key).unwrap();
        cache.settle(&key, &object, [1; 16]);
        // The same version once more, as after a gap.
        list(&cache, &mut listing, vec![map("x", "a", 1)]);
        assert_eq!(settled(&cache), Some([1; 16]));
        cache.apply(Event::Apply(map("x", "a", 2)), &mut listing);
        assert_eq!(settled(&cache), None);
        // It is about what was there before.
        cache.settle(&key, &object, [1; 16]);
        assert_eq!(settled(&cache), None);
    }

    #[test]
    fn a_list_that_did_not_end_changes_nothing() {
        let ((cache, told), mut listing) = (followed(1), Listing::default());
        list(&cache, &mut listing, vec![map("x", "a", 1)]);
        take(&told);
        cache.apply(Event::Init, &mut listing);
        cache.apply(Event::InitApply(map("x", "b", 2)), &mut listing);
        list(&cache, &mut listing, vec![map("x", "a", 1)]);
        assert_eq!((take(&told), cache.len()), (Vec::new(), 1));
    }

    #[test]
    fn the_watch_of_one_namespace_says_nothing_of_others_and_all_have_to_be_complete() {
        let (cache, told) = followed(2);
        let listing = |namespace: &str| Listing { namespace: Some(namespace.to_owned()), ..Listing::default() };
        let (mut x, mut y) = (listing("x"), listing("y"));
        list(&cache, &mut x, vec![map("x", "a", 1)]);
        assert!(!cache.is_synced());
        list(&cache, &mut y, vec![map("y", "b", 2)]);
        assert!(cache.is_synced());
        take(&told);
        list(&cache, &mut y, Vec::new());
        assert_eq!((take(&told), cache.len()), (vec!["b: 2 -> ".to_owned()], 1));
    }

    #[test]
    fn an_object_that_was_replaced_by_one_of_the_same_name_changed() {
        let ((cache, told), mut listing) = (followed(1), Listing::default());
        list(&cache, &mut listing, vec![map("x", "a", 1)]);
        take(&told);
        let mut other = map("x", "a", 1);
        other.metadata.uid = Some("other".to_owned());
        cache.apply(Event::Apply(other), &mut listing);
        cache.apply(Event::Delete(map("x", "a", 2)), &mut listing);
        cache.apply(Event::Delete(map("x", "a", 2)), &mut listing);
        assert_eq!(take(&told), ["a: 1 -> ", "a: 1 -> 1"]);
    }

    #[test]
    fn what_an_owner_controls_follows_every_change() {
        use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

        let ((cache, _), mut listing) = (followed(1), Listing::default());
        let owned = |name: &str, version: u32, uid: &str| {
            let mut map = map("x", name, version);
            let reference = OwnerReference { uid: uid.to_owned(), controller: Some(true), ..OwnerReference::default() };
            map.metadata.owner_references = Some(vec![reference]);
            map
        };
        let names = |uid: &str| {
            let mut names: Vec<_> = cache.owned_by(uid).iter().map(|map| map.name_any()).collect();
            names.sort();
            names
        };
        list(&cache, &mut listing, vec![owned("a", 1, "one"), owned("b", 2, "one"), map("x", "c", 3)]);
        assert_eq!(names("one"), ["a", "b"]);
        cache.apply(Event::Apply(owned("a", 4, "other")), &mut listing);
        cache.apply(Event::Delete(owned("b", 5, "one")), &mut listing);
        assert_eq!((names("one"), names("other")), (vec![], vec!["a".to_owned()]));
        list(&cache, &mut listing, vec![owned("c", 6, "one")]);
        assert_eq!((names("one"), names("other")), (vec!["c".to_owned()], vec![]));
    }

    #[test]
    fn the_answer_to_a_write_counts_until_the_watch_tells_more_and_brings_nothing_back() {
        let ((cache, told), mut listing) = (followed(1), Listing::default());
        list(&cache, &mut listing, vec![map("x", "a", 5)]);
        take(&told);
        let version = || cache.get(&Key::namespaced("x", "a")).and_then(|map| map.resource_version());
        let lists = cache.lists();
        cache.learn(map("x", "a", 9), lists);
        assert_eq!((version().as_deref(), take(&told)), (Some("9"), vec!["a: 5 -> 9".to_owned()]));
        // The watch comes to what was before it, and to itself.
        cache.apply(Event::Apply(map("x", "a", 7)), &mut listing);
        cache.apply(Event::Apply(map("x", "a", 9)), &mut listing);
        assert_eq!((version().as_deref(), take(&told)), (Some("9"), vec![]));
        // It is gone before the answer to another write comes.
        cache.apply(Event::Delete(map("x", "a", 12)), &mut listing);
        cache.learn(map("x", "a", 11), lists);
        assert_eq!((version(), take(&told)), (None, vec!["a: 9 -> ".to_owned()]));
        // It was gone in a list that was made in the meantime.
        list(&cache, &mut listing, Vec::new());
        cache.learn(map("x", "a", 13), lists);
        assert_eq!((version(), take(&told)), (None, vec![]));
    }

    #[test]
    fn nothing_is_learned_that_no_watch_would_tell_the_end_of() {
        let mut labelled = map("x", "a", 5);
        labelled.metadata.labels = Some([("kind".to_owned(), "tank".to_owned())].into());
        let of = |caches: &Caches, selector| caches.of::<ConfigMap>(selector);
        let (everywhere, one) = (Caches::new(Scope::All), Caches::new(Scope::namespaces(["x"])));
        let names = |cache: &Cache<ConfigMap>| cache.all().iter().map(|map| map.name_any()).collect::<Vec<_>>();

        let cache = of(&one, None);
        cache.learn(map("y", "elsewhere", 9), cache.lists());
        cache.learn(map("x", "here", 9), cache.lists());
        assert_eq!(names(&cache), ["here"]);

        let (cache, mut listing) = (of(&everywhere, Some("kind=tank")), Listing::default());
        list(&cache, &mut listing, vec![labelled.clone()]);
        cache.learn(map("x", "without", 9), cache.lists());
        labelled.metadata.resource_version = Some("9".to_owned());
        cache.learn(labelled, cache.lists());
        assert_eq!(names(&cache), ["a"]);
        assert_eq!(cache.all()[0].resource_version().as_deref(), Some("9"));
        cache.learn(map("x", "a", 10), cache.lists());
        assert_eq!(cache.all()[0].resource_version().as_deref(), Some("9"), "it may be none of them any more");
    }
}

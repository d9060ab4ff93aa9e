//! Objects by key, and by who controls them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::{Key, Object};

/// Of what is wanted of an object.
pub(crate) type Fingerprint = [u8; 16];

#[derive(Debug)]
pub(super) struct Objects<K> {
    by_key: HashMap<Key, Known<K>>,
    /// The uid of the controlling owner.
    by_owner: HashMap<Box<str>, Owned>,
    /// The newest version that the watches have told of.
    newest: u64,
    /// How many lists have been taken over.
    lists: u64,
}

/// An object, and what was wanted when it was as it should be.
#[derive(Debug)]
struct Known<K> {
    object: Arc<K>,
    settled: Option<Fingerprint>,
}

/// What an owner controls. Most have one object of a kind, and a set for it would be larger than its key.
#[derive(Debug)]
enum Owned {
    One(Key),
    Many(Box<HashSet<Key>>),
}

impl Owned {
    fn add(&mut self, key: Key) {
        match self {
            Self::One(only) if *only == key => {}
            Self::One(only) => *self = Self::Many(Box::new([only.clone(), key].into())),
            Self::Many(keys) => {
                keys.insert(key);
            }
        }
    }

    /// Whether nothing is left.
    fn take_off(&mut self, key: &Key) -> bool {
        match self {
            Self::One(only) => only == key,
            Self::Many(keys) => {
                keys.remove(key);
                keys.is_empty()
            }
        }
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        let (one, many) = match self {
            Self::One(only) => (Some(only), None),
            Self::Many(keys) => (None, Some(keys.iter())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), by_owner: HashMap::new(), newest: 0, lists: 0 }
    }
}

impl<K: Object> Objects<K> {
    pub(super) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.by_key.get(key).map(|known| &known.object)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.by_key.iter().map(|(key, known)| (key, &known.object))
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<K>> {
        self.by_owner.get(uid).into_iter().flat_map(Owned::keys).filter_map(|key| self.get(key))
    }

    /// Returns what it takes the place of.
    pub(super) fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        if let Some(known) = self.by_key.get_mut(&key) {
            if !is_version_of(&*known.object, &*object) {
                known.settled = None;
            }
            let before = std::mem::replace(&mut known.object, object.clone());
            if controller(&*before) != controller(&*object) {
                self.disown(&key, &before);
                self.own(key, &object);
            }
            return Some(before);
        }
        self.own(key.clone(), &object);
        self.by_key.insert(key, Known { object, settled: None });
        None
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let before = self.by_key.remove(key)?.object;
        self.disown(key, &before);
        Some(before)
    }

    fn own(&mut self, key: Key, object: &K) {
        let Some(uid) = controller(object) else { return };
        match self.by_owner.get_mut(uid) {
            Some(owned) => owned.add(key),
            None => drop(self.by_owner.insert(uid.into(), Owned::One(key))),
        }
    }

    fn disown(&mut self, key: &Key, object: &K) {
        let Some(uid) = controller(object) else { return };
        if self.by_owner.get_mut(uid).is_some_and(|owned| owned.take_off(key)) {
            self.by_owner.remove(uid);
        }
    }

    /// An object, and what was wanted of it when it was so.
    pub(super) fn settled(&self, key: &Key) -> Option<(Arc<K>, Option<Fingerprint>)> {
        self.by_key.get(key).map(|known| (known.object.clone(), known.settled))
    }

    /// Takes note that `object` is as it should be, if it is still what is there.
    pub(super) fn settle(&mut self, key: &Key, object: &Arc<K>, wanted: Fingerprint) {
        if let Some(known) = self.by_key.get_mut(key).filter(|known| Arc::ptr_eq(&known.object, object)) {
            known.settled = Some(wanted);
        }
    }
}

/// Whether both are the same object in the same version.
fn is_version_of<K: Object>(one: &K, other: &K) -> bool {
    let (one, other) = (one.meta(), other.meta());
    one.resource_version.is_some() && one.resource_version == other.resource_version && one.uid == other.uid
}

impl<K: Object> Objects<K> {
    /// Takes note that a watch has told of this version.
    pub(super) fn told(&mut self, object: &K) {
        self.newest = self.newest.max(version(object).unwrap_or_default());
    }

    /// Takes note of a whole list.
    pub(super) fn listed(&mut self) {
        self.lists += 1;
    }

    pub(super) fn lists(&self) -> u64 {
        self.lists
    }

    /// Whether what is known is newer: it was learned from the answer to a write, which the watch has not come to.
    pub(super) fn is_outdated(&self, key: &Key, object: &K) -> bool {
        let known = self.get(key).filter(|known| known.meta().uid == object.meta().uid);
        known.and_then(|known| version(&**known)) > version(object)
    }

    /// Whether the answer to a write may be taken for what is there: the watches have not come so far, and no list has been taken over since
    /// there were `lists`. Otherwise it may be gone again, and nobody would tell.
    pub(super) fn may_learn(&self, object: &K, lists: u64) -> bool {
        self.lists == lists && version(object).is_some_and(|version| version > self.newest)
    }
}

/// Versions of one kind are numbers in the order of their events.
fn version(object: &impl kube::Resource) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

/// The uid of the owner that controls an object.
pub(crate) fn controller(object: &impl kube::Resource) -> Option<&str> {
    let mut references = object.meta().owner_references.iter().flatten();
    references.find(|reference| reference.controller == Some(true)).map(|reference| reference.uid.as_str())
}

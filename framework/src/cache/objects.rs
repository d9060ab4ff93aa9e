//! Objects by key and by controlling owner.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::event::InvalidObject;
use super::packed::Packed;
use crate::{Key, Object};

/// A digest of an object's desired state.
pub(crate) type Fingerprint = [u8; 16];

#[derive(Debug)]
pub(super) struct Objects<K> {
    by_key: HashMap<Key, CachedObject<K>>,
    /// By the uid of the controlling owner.
    by_owner: HashMap<Arc<str>, Owned>,
    /// Existing objects that do not match the type.
    misfits: HashMap<Key, InvalidObject>,
    /// Newest version that the watches have delivered.
    newest: u64,
    /// Number of complete lists.
    lists: u64,
    /// Number of responses to writes that were stored.
    learned: u64,
}

/// An object, and fields that are read so often that they are stored beside it.
#[derive(Debug)]
pub(crate) struct CachedObject<K> {
    object: Packed<K>,
    uid: Option<Box<str>>,
    version: Option<u64>,
    /// The uid of its controlling owner.
    owner: Option<Arc<str>>,
    /// The desired state that the object was found to match.
    settled: Option<Fingerprint>,
    /// The number of the write that it is the response to. It was encoded by us: the apiserver's text of this version may differ.
    learned: Option<u64>,
}

/// What an object replaced.
#[derive(Debug)]
pub(super) enum Put<K> {
    /// Nothing: it is new.
    New,
    /// The same version.
    Same,
    /// This version.
    InsteadOf(Packed<K>),
}

impl<K: Object> CachedObject<K> {
    pub(super) fn of(object: &K, packed: Packed<K>) -> Self {
        Self {
            object: packed,
            uid: object.meta().uid.as_deref().map(Into::into),
            version: version(object),
            owner: controller(object).map(Into::into),
            settled: None,
            learned: None,
        }
    }
}

impl<K: Object> CachedObject<K> {
    /// An object that was read from the apiserver.
    pub(crate) fn read(mut object: K) -> Self {
        object.meta_mut().managed_fields = None;
        Self::of(&object, Packed::of(&object))
    }
}

impl<K> CachedObject<K> {
    pub(crate) fn object(&self) -> &Packed<K> {
        &self.object
    }

    pub(super) fn version(&self) -> Option<u64> {
        self.version
    }

    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Returns whether both are the same version of the same object.
    fn is_same(&self, other: &Self) -> bool {
        let is_one_version = self.version.is_some() && (self.version, &self.uid) == (other.version, &other.uid);
        self.object == other.object || (self.learned.is_some() || other.learned.is_some()) && is_one_version
    }

    /// Returns whether it is the response to a write after the first `learned`, which a list at `version` does not show.
    fn is_later_than(&self, learned: u64, version: Option<u64>) -> bool {
        version.is_some() && self.version > version && self.learned.is_some_and(|number| number > learned)
    }

    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    pub(crate) fn settled(&self) -> Option<Fingerprint> {
        self.settled
    }
}

impl<K> Clone for CachedObject<K> {
    fn clone(&self) -> Self {
        let Self { object, uid, owner, .. } = self;
        Self { object: object.clone(), uid: uid.clone(), owner: owner.clone(), ..*self }
    }
}

/// The objects that an owner controls. Most owners have one of a kind, and a set in place would be larger than a key.
#[derive(Debug)]
enum Owned {
    One(Key),
    #[expect(
        clippy::box_collection,
        reason = "a set in place would make all entries larger than the key that most have"
    )]
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

    /// Removes a key. Returns whether none is left.
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
        Self {
            by_key: HashMap::new(),
            by_owner: HashMap::new(),
            misfits: HashMap::new(),
            newest: 0,
            lists: 0,
            learned: 0,
        }
    }
}

impl<K> Objects<K> {
    pub(super) fn get(&self, key: &Key) -> Option<&Packed<K>> {
        self.by_key.get(key).map(|known| &known.object)
    }

    pub(super) fn known(&self, key: &Key) -> Option<&CachedObject<K>> {
        self.by_key.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Packed<K>)> {
        self.by_key.iter().map(|(key, known)| (key, &known.object))
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Packed<K>> {
        self.by_owner.get(uid).into_iter().flat_map(Owned::keys).filter_map(|key| self.get(key))
    }

    pub(super) fn put(&mut self, key: Key, mut known: CachedObject<K>) -> Put<K> {
        self.misfits.remove(&key);
        let Some(there) = self.by_key.get_mut(&key) else {
            self.own(known.owner.as_ref(), &key);
            self.by_key.insert(key, known);
            return Put::New;
        };
        if there.is_same(&known) {
            if there.learned.is_some() && known.learned.is_none() {
                (there.object, there.learned) = (known.object, None);
            }
            return Put::Same;
        }
        if there.owner == known.owner {
            known.owner = there.owner.take();
            return Put::InsteadOf(std::mem::replace(there, known).object);
        }
        let owner = known.owner.clone();
        let before = std::mem::replace(there, known);
        self.disown(before.owner(), &key);
        self.own(owner.as_ref(), &key);
        Put::InsteadOf(before.object)
    }

    /// Stores the response to a write.
    pub(super) fn learn(&mut self, key: Key, known: CachedObject<K>) -> Put<K> {
        self.learned += 1;
        self.put(key, CachedObject { learned: Some(self.learned), ..known })
    }

    /// Returns the number of responses to writes that were stored.
    pub(super) fn learned(&self) -> u64 {
        self.learned
    }

    /// Returns whether the object is the response to a write after the first `learned`, which a list at `version` does not show.
    pub(super) fn is_later(&self, key: &Key, learned: u64, version: Option<u64>) -> bool {
        self.by_key.get(key).is_some_and(|known| known.is_later_than(learned, version))
    }

    /// Records an invalid object, which is left out. Returns whether it is new, and the valid object that it replaced.
    pub(super) fn leave_out(&mut self, misfit: InvalidObject) -> (bool, Option<Packed<K>>) {
        let known = self.misfits.get(&misfit.key) == Some(&misfit);
        let before = self.remove(&misfit.key);
        self.misfits.insert(misfit.key.clone(), misfit);
        (!known, before)
    }

    pub(super) fn misfits(&self) -> &HashMap<Key, InvalidObject> {
        &self.misfits
    }

    pub(super) fn keep_misfits(&mut self, are_there: impl Fn(&Key) -> bool) {
        self.misfits.retain(|key, _| are_there(key));
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Packed<K>> {
        self.misfits.remove(key);
        let before = self.by_key.remove(key)?;
        self.disown(before.owner(), key);
        Some(before.object)
    }

    fn own(&mut self, owner: Option<&Arc<str>>, key: &Key) {
        let Some(owner) = owner else { return };
        match self.by_owner.get_mut(owner) {
            Some(keys) => keys.add(key.clone()),
            None => drop(self.by_owner.insert(owner.clone(), Owned::One(key.clone()))),
        }
    }

    fn disown(&mut self, owner: Option<&str>, key: &Key) {
        let Some(owner) = owner else { return };
        if self.by_owner.get_mut(owner).is_some_and(|keys| keys.take_off(key)) {
            self.by_owner.remove(owner);
        }
    }

    /// Records that an object, if it is still current, matches the desired state.
    pub(super) fn settle(&mut self, key: &Key, object: &Packed<K>, wanted: Fingerprint) {
        if let Some(known) = self.by_key.get_mut(key).filter(|known| known.object.is(object)) {
            known.settled = Some(wanted);
        }
    }

    /// Records that a watch has delivered this version.
    pub(super) fn delivered(&mut self, version: Option<u64>) {
        self.newest = self.newest.max(version.unwrap_or_default());
    }

    /// Records a complete list.
    pub(super) fn listed(&mut self) {
        self.lists += 1;
    }

    pub(super) fn lists(&self) -> u64 {
        self.lists
    }

    /// Returns whether the cache has a newer version, learned from a response that the watch has not reached. The previous
    /// object of that name may have another uid.
    pub(super) fn is_outdated(&self, key: &Key, version: Option<u64>) -> bool {
        self.by_key.get(key).and_then(CachedObject::version) > version
    }

    /// Returns whether the response to a write may be stored: the watches have not reached its version, and no list has been
    /// completed since there were `lists`. Otherwise the object may be deleted already, and no event would report that.
    pub(super) fn may_learn(&self, version: Option<u64>, lists: u64) -> bool {
        self.lists == lists && version.is_some_and(|version| version > self.newest)
    }
}

/// Returns the version as a number. Versions of one kind are numbers in the order of their events.
pub(super) fn version(object: &impl kube::Resource) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

/// Returns the uid of the owner that controls an object.
fn controller(object: &impl kube::Resource) -> Option<&str> {
    let mut references = object.meta().owner_references.iter().flatten();
    references.find(|reference| reference.controller == Some(true)).map(|reference| reference.uid.as_str())
}

//! Objects by key, and by who controls them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::{Key, Object};

#[derive(Debug)]
pub(super) struct Objects<K> {
    by_key: HashMap<Key, Arc<K>>,
    /// The uid of the controlling owner.
    by_owner: HashMap<String, HashSet<Key>>,
    /// The newest version that the watches have told of.
    newest: u64,
    /// How many lists have been taken over.
    lists: u64,
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), by_owner: HashMap::new(), newest: 0, lists: 0 }
    }
}

impl<K: Object> Objects<K> {
    pub(super) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.by_key.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.by_key.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn owned_by(&self, uid: &str) -> impl Iterator<Item = &Arc<K>> {
        self.by_owner.get(uid).into_iter().flatten().filter_map(|key| self.by_key.get(key))
    }

    /// Returns what it takes the place of.
    pub(super) fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let before = self.remove(&key);
        if let Some(uid) = controller(&*object) {
            self.by_owner.entry(uid.to_owned()).or_default().insert(key.clone());
        }
        self.by_key.insert(key, object);
        before
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Arc<K>> {
        let before = self.by_key.remove(key)?;
        if let Some(uid) = controller(&*before)
            && let Some(owned) = self.by_owner.get_mut(uid)
        {
            owned.remove(key);
            if owned.is_empty() {
                self.by_owner.remove(uid);
            }
        }
        Some(before)
    }
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
        let known = self.by_key.get(key).filter(|known| known.meta().uid == object.meta().uid);
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

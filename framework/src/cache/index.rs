//! Indexes of a cache.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Cache, Change, Follower};
use crate::{Key, Object};

type Keys = HashMap<String, HashSet<Key>>;
type Values<K> = dyn Fn(&K) -> Vec<String> + Send + Sync;

/// The objects of a cache by values that a function takes from them: a label, the name of a Secret, a node.
///
/// A lookup costs as much as the number of objects that it finds. An index is up to date before controllers that were added
/// to the [`Manager`](crate::Manager) after it are triggered.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use trishanku_framework::Manager;
///
/// # fn example(manager: &Manager) {
/// let pods = manager.caches().cache::<Pod>();
/// let of_node = pods.index(|pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
/// for pod in of_node.get("node-7") {
///     println!("{:?}", pod.metadata.name);
/// }
/// # }
/// ```
pub struct Index<K: Object> {
    cache: Arc<Cache<K>>,
    values: Arc<Values<K>>,
    keys: Arc<Mutex<Keys>>,
}

impl<K: Object> Cache<K> {
    /// Adds an index of the values that `values` returns. It must not block. Costs a call for each object, now and when it
    /// changes.
    pub fn index(self: &Arc<Self>, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index<K> {
        let (values, keys): (Arc<Values<K>>, Arc<Mutex<Keys>>) = (Arc::new(values), Arc::default());
        let (of, indexed) = (values.clone(), Arc::downgrade(&keys));
        let follow = move |change: &Change<'_, K>| {
            let Some(keys) = indexed.upgrade() else { return };
            let keys = &mut *keys.lock().unwrap_or_else(PoisonError::into_inner);
            let key = Key::of(change.object());
            for value in change.before.iter().flat_map(|before| of(before)) {
                if let Some(found) = keys.get_mut(&value) {
                    found.remove(&key);
                    if found.is_empty() {
                        keys.remove(&value);
                    }
                }
            }
            for value in change.after.iter().flat_map(|after| of(after)) {
                keys.entry(value).or_default().insert(key.clone());
            }
        };
        // No change comes between the objects that are there and those that follow.
        let mut followers = self.followers();
        for object in self.all() {
            follow(&Change { before: None, after: Some(&*object), initial: true });
        }
        followers.push(Follower { notify: Box::new(follow), initial: true });
        drop(followers);
        Index { cache: self.clone(), values, keys }
    }
}

impl<K: Object> Index<K> {
    /// Returns the objects that have this value, in no order. Decodes each.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        let objects = self.keys(value).into_iter().filter_map(|key| self.cache.get(&key));
        // The cache may be a moment ahead of the index.
        objects.filter(|object| (self.values)(object).iter().any(|found| found == value)).collect()
    }

    /// Returns the keys of the objects that have this value, in no order.
    pub fn keys(&self, value: &str) -> Vec<Key> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.get(value).into_iter().flatten().cloned().collect()
    }
}

impl<K: Object> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self { cache: self.cache.clone(), values: self.values.clone(), keys: self.keys.clone() }
    }
}

impl<K: Object> std::fmt::Debug for Index<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.keys.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("Index").field("values", &values).finish_non_exhaustive()
    }
}

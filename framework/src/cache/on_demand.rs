//! Objects of which only the metadata is cached.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Client;
use kube::core::PartialObjectMeta;

use super::objects::version;
use super::packed::Packed;
use super::{Cache, Change};
use crate::{Key, Kind, StaticKind};

/// The objects of a kind of which few are needed and the others may be large, such as the Secrets of a cluster: the cache
/// has the metadata of all, and an object is read from the apiserver when it is needed.
///
/// It is read again only after it changed, and kept until then. So a reconcile that is triggered by a change of the
/// [metadata](Self::metadata) gets an object that is at least as new. The program needs the permission to `get` the kind, as
/// well as to `list` and `watch` it.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::Secret;
/// use trishanku_framework::{Context, Key, Manager};
/// use trishanku_framework::cache::OnDemand;
///
/// # async fn example(context: Context, secrets: OnDemand<Secret>) -> kube::Result<()> {
/// // let secrets = kinds.cache_on_demand::<Secret>();
/// if let Some(secret) = secrets.get(&context.client, &Key::namespaced("plant", "pump-password")).await? {
///     println!("it has {} keys", secret.data.as_ref().map_or(0, |data| data.len()));
/// }
/// # Ok(())
/// # }
/// ```
pub struct OnDemand<K: StaticKind> {
    metadata: Arc<Cache<PartialObjectMeta<K>>>,
    /// The objects that were read, until they change.
    read: Arc<Mutex<HashMap<Key, Packed<K>>>>,
}

impl<K: StaticKind> OnDemand<K>
where
    PartialObjectMeta<K>: StaticKind,
{
    pub(crate) fn new(metadata: Arc<Cache<PartialObjectMeta<K>>>) -> Self {
        let read: Arc<Mutex<HashMap<Key, Packed<K>>>> = Arc::default();
        let of_changes = Arc::downgrade(&read);
        metadata.follow_later(move |change: &Change<'_, PartialObjectMeta<K>>| {
            if let Some(read) = of_changes.upgrade() {
                lock(&read).remove(&Key::of(change.object()));
            }
        });
        Self { metadata, read }
    }

    /// Returns the cache of the metadata, whose changes can trigger reconciles.
    pub fn metadata(&self) -> &Arc<Cache<PartialObjectMeta<K>>> {
        &self.metadata
    }

    /// Returns an object, unless the cache of the metadata lacks it. Sends a request if it was not read before, or has changed
    /// since.
    ///
    /// # Errors
    /// The error of the request. An object that was deleted meanwhile is `None`.
    pub async fn get(&self, client: &Client, key: &Key) -> kube::Result<Option<Arc<K>>> {
        let Some(metadata) = self.metadata.get(key) else { return Ok(None) };
        let is_current =
            |object: &Arc<K>| object.meta().uid == metadata.metadata.uid && version(&**object) >= version(&*metadata);
        let read = lock(&self.read).get(key).cloned();
        if let Some(object) = read.map(|packed| packed.object()).filter(is_current) {
            return Ok(Some(object));
        }
        let api = Kind::<K>::known().api(client.clone(), key.namespace());
        let Some(mut object) = api.get_opt(key.name()).await? else { return Ok(None) };
        object.meta_mut().managed_fields = None;
        lock(&self.read).insert(key.clone(), Packed::of(&object));
        // Deleted while it was read: no further change would remove it.
        if self.metadata.get(key).is_none() {
            lock(&self.read).remove(key);
        }
        Ok(Some(Arc::new(object)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: StaticKind> Clone for OnDemand<K> {
    fn clone(&self) -> Self {
        Self { metadata: self.metadata.clone(), read: self.read.clone() }
    }
}

impl<K: StaticKind> std::fmt::Debug for OnDemand<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDemand").field("read", &lock(&self.read).len()).finish_non_exhaustive()
    }
}

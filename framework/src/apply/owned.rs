//! Objects that the objects of a controller own.

use std::ops::Deref;
use std::sync::Arc;

use crate::Object;
use crate::cache::Cache;

/// The cached objects of a kind that a controller applies, with the promise that a change of one reconciles its owner.
///
/// [`Kinds::owned`](crate::Kinds::owned) creates it together with the trigger, and [`ApplySet`](super::ApplySet) applies objects only
/// to it: so a controller cannot own objects whose changes it does not see.
///
/// ```compile_fail,E0308
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use trishanku_framework::apply::{ApplyError, ApplySet};
/// use trishanku_framework::cache::Cache;
///
/// async fn apply(mut set: ApplySet<'_, ConfigMap>, map: ConfigMap, maps: &Cache<ConfigMap>) -> Result<(), ApplyError> {
///     // A change of the map would trigger nothing.
///     set.apply(map, maps).await.map(drop)
/// }
/// ```
pub struct Owned<K: Object>(Arc<Cache<K>>);

impl<K: Object> Owned<K> {
    /// Creates it without a trigger: for use without a [`Controller`](crate::Controller), or if
    /// [`owns`](crate::Controller::owns) or a trigger of your own is declared elsewhere.
    ///
    /// It does not declare the kind for [`prune_all`](super::ApplySet::prune_all), which knows it only in a reconcile that applies
    /// an object of it. With [`Kinds::owned`](crate::Kinds::owned) or [`owns_cached`](crate::Controller::owns_cached), it always does.
    pub fn without_trigger(cache: Arc<Cache<K>>) -> Self {
        Self(cache)
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Arc<Cache<K>> {
        &self.0
    }
}

impl<K: Object> Deref for Owned<K> {
    type Target = Cache<K>;

    fn deref(&self) -> &Cache<K> {
        &self.0
    }
}

impl<K: Object> Clone for Owned<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Object> std::fmt::Debug for Owned<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Owned").field(&self.0).finish()
    }
}

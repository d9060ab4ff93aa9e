//! A further cluster of a manager.

use std::sync::Arc;

use kube::Client;
use kube::core::PartialObjectMeta;

use crate::cache::{Cache, Caches, OnDemand, Selector};
use crate::{Kind, Object, StaticKind};

/// A cluster beside the manager's own: [`Manager::cluster`](crate::Manager::cluster). Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) name: Arc<str>,
    pub(crate) client: Client,
    /// For caches, which need no lease.
    pub(crate) open: Client,
    pub(crate) caches: Arc<Caches>,
}

impl Cluster {
    /// Returns the client. Its requests fail without the manager's lease, if there is one, and before the manager runs.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the cache of a kind; see [`Manager::cache`](crate::Manager::cache).
    pub fn cache<K: StaticKind>(&self) -> Arc<Cache<K>> {
        self.caches.of(None)
    }

    /// Returns the cache of a kind's objects with these labels, or [by fields](Selector).
    pub fn cache_selecting<K: StaticKind>(&self, selector: impl Into<Selector>) -> Arc<Cache<K>> {
        self.caches.selected(&Kind::known(), &selector.into())
    }

    /// Returns the cache of any kind, and with these labels if there are any.
    pub fn cache_of<K: Object>(&self, kind: &Kind<K>, labels: Option<&str>) -> Arc<Cache<K>> {
        self.caches.of_kind(kind, labels)
    }

    /// Returns the objects of a kind of which few are needed, and the others may be large: only their metadata is cached.
    pub fn cache_on_demand<K: StaticKind>(&self) -> OnDemand<K>
    where
        PartialObjectMeta<K>: StaticKind,
    {
        self.caches.on_demand()
    }

    /// Returns all caches, to add one while the manager runs.
    pub fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

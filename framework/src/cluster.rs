//! A further cluster of a manager.

use std::sync::Arc;

use kube::Client;

use crate::cache::Caches;

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

    /// Returns its caches; see [`Manager::caches`](crate::Manager::caches).
    pub fn caches(&self) -> Arc<Caches> {
        self.caches.clone()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

//! The kinds that a controller reads and owns.

use std::ops::Deref;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::trigger::Owner;
use crate::apply::{Owned, OwnedKind, is_same};
use crate::cache::{Cache, Caches, Change, Selector};
use crate::{Key, Kind, Object, StaticKind};

/// What gets the keys of objects to reconcile.
pub(super) trait Affected: Send + Sync {
    fn affected(&self, keys: Vec<Key>);
}

/// Connects the changes of a cache with a controller, once there is one. Returns a future that completes when the cache is complete.
pub(super) type Connect = Box<dyn FnOnce(&Caches, &Arc<dyn Affected>) -> BoxFuture<'static, ()> + Send>;

/// Returns a kind that a controller owns, once there are caches.
pub(super) type DeclareOwned = Box<dyn FnOnce(&Caches) -> Arc<dyn OwnedKind> + Send>;

/// The [caches](Caches) of a manager, for a reconciler that is being created. What it takes from here with [`owned`](Self::owned) also
/// triggers it; changes in other caches do not, unless it [watches](Self::watches) them. See
/// [`Controller::set_up`](super::Controller::set_up).
pub struct Kinds<'a> {
    caches: &'a Caches,
    owner: Owner,
    connections: Vec<Connect>,
    /// For a prune of all kinds.
    owned: Vec<Arc<dyn OwnedKind>>,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(caches: &'a Caches, owner: Owner) -> Self {
        Self { caches, owner, connections: Vec::new(), owned: Vec::new() }
    }

    /// Returns the triggers, and all kinds that the controller owns; `more` are those that the reconciler did not declare.
    pub(super) fn into_parts(mut self, more: Vec<DeclareOwned>) -> (Vec<Connect>, Vec<Arc<dyn OwnedKind>>) {
        for declare in more {
            let kind = declare(self.caches);
            if !self.owned.iter().any(|known| is_same(known, &kind)) {
                self.owned.push(kind);
            }
        }
        (self.connections, self.owned)
    }

    /// Returns the objects of a kind, for an [`ApplySet`](crate::apply::ApplySet). A change of one reconciles the object that
    /// controls it.
    pub fn owned<K: StaticKind>(&mut self) -> Owned<K> {
        self.owned_of(&Kind::known(), None)
    }

    /// As [`owned`](Self::owned), of a kind that many others use: only objects with these labels are cached, such as
    /// [`PART_OF`](crate::apply::PART_OF). Needs the permission to `get` the kind, as
    /// [`cache_selecting`](Caches::cache_selecting).
    pub fn owned_selecting<K: StaticKind>(&mut self, selector: impl Into<Selector>) -> Owned<K> {
        self.owns(self.cache_selecting(selector))
    }

    /// As [`owned`](Self::owned), of any kind, and with these labels if there are any.
    pub fn owned_of<K: Object>(&mut self, kind: &Kind<K>, labels: Option<&str>) -> Owned<K> {
        self.owns(self.cache_of(kind, labels))
    }

    fn owns<K: Object>(&mut self, cache: Arc<Cache<K>>) -> Owned<K> {
        self.connections.push(follow(cache.clone(), owners(self.owner.clone())));
        self.owned.push(cache.clone());
        Owned::without_trigger(cache)
    }

    /// Also reconciles the objects that `affected` returns for a change in `cache`: for references to objects that the controller
    /// does not own. The closure can share an index with the reconciler that is being created.
    pub fn watches<K: Object>(
        &mut self,
        cache: &Arc<Cache<K>>,
        affected: impl Fn(&Change<'_, K>) -> Vec<Key> + Send + Sync + 'static,
    ) {
        self.connections.push(follow(cache.clone(), affected));
    }
}

impl Deref for Kinds<'_> {
    type Target = Caches;

    fn deref(&self) -> &Caches {
        self.caches
    }
}

impl std::fmt::Debug for Kinds<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kinds").field("owned", &self.owned.len()).finish_non_exhaustive()
    }
}

/// Returns a function that finds the owners of an object, before and after its change.
pub(super) fn owners<K: Object>(owner: Owner) -> impl Fn(&Change<'_, K>) -> Vec<Key> + Send + Sync + 'static {
    move |change| {
        let objects = change.before.into_iter().chain(change.after);
        objects.filter_map(|object| owner.of(object.meta())).collect()
    }
}

/// Declares the kind of a cache.
pub(super) fn declare<C: Object>(cache: Arc<Cache<C>>) -> DeclareOwned {
    Box::new(move |_| cache)
}

/// Declares a kind.
pub(super) fn declare_kind<C: Object>(kind: Kind<C>) -> DeclareOwned {
    Box::new(move |caches| caches.cache_of(&kind, None))
}

/// Connects a cache.
pub(super) fn follow<W: Object>(
    cache: Arc<Cache<W>>,
    affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
) -> Connect {
    Box::new(move |_, controller| connect(&cache, controller, affected))
}

/// Connects the cache of a kind.
pub(super) fn follow_kind<W: Object>(
    kind: Kind<W>,
    affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
) -> Connect {
    Box::new(move |caches, controller| connect(&caches.cache_of(&kind, None), controller, affected))
}

fn connect<W: Object>(
    cache: &Arc<Cache<W>>,
    controller: &Arc<dyn Affected>,
    affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
) -> BoxFuture<'static, ()> {
    let controller = Arc::downgrade(controller);
    // The initial list triggers nothing: the first reconcile already sees it.
    cache.follow_later(move |change| {
        if let Some(controller) = controller.upgrade() {
            controller.affected(affected(change));
        }
    });
    let cache = cache.clone();
    Box::pin(async move { cache.synced().await })
}

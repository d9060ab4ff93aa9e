//! The caches of a program.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::core::PartialObjectMeta;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::reflector::Reflector;
use super::selector::Selector;
use super::source::Source;
use super::trouble::WatchHealth;
use super::{Cache, Listing, OnDemand};
use crate::metrics::{CacheMetrics, Metrics};
use crate::{Kind, Object, StaticKind};

/// How long the apiserver may be silent: kube-apiserver itself ends requests after a minute.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(65);

/// The namespaces to watch. Does not apply to cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All namespaces; needs permission for the whole cluster.
    All,
    /// These namespaces; permission in each of them is enough.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// Creates a scope of these namespaces.
    pub fn namespaces(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Namespaces(names.into_iter().map(Into::into).collect())
    }
}

/// The caches of a program: one for each kind and selector, filled by one watch in each namespace.
///
/// Reconcilers get theirs from [`Kinds`](crate::Kinds) when they are created, or from
/// [`Manager::caches`](crate::Manager::caches) and [`Cluster::caches`](crate::Cluster::caches).
pub struct Caches {
    scope: Scope,
    entries: Mutex<HashMap<Id, Entry>>,
    /// While [`fill`](Caches::fill) runs. Locked after `entries`.
    filling: Mutex<Option<Filling>>,
    metrics: CacheMetrics,
}

/// How a cache that is added is filled.
struct Filling {
    client: Client,
    limit: Duration,
    added: mpsc::UnboundedSender<Task>,
}

/// The type, since a kind can be decoded as several types; the path, since a type can be of several kinds; and the selector.
type Id = (TypeId, String, Selector);
type Task = BoxFuture<'static, ()>;
type Start = Box<dyn Fn(&Client, Duration) -> Vec<Task> + Send>;

struct Entry {
    cache: Arc<dyn Any + Send + Sync>,
    kind: String,
    start: Start,
    synced: Box<dyn Fn() -> Task + Send>,
    /// One for each watch.
    troubles: Vec<Arc<WatchHealth>>,
}

impl Caches {
    /// Creates a registry without caches.
    pub fn new(scope: Scope) -> Self {
        Self { scope, entries: Mutex::default(), filling: Mutex::default(), metrics: CacheMetrics::default() }
    }

    pub(crate) fn counted(self, metrics: &Metrics) -> Self {
        Self { metrics: metrics.of_caches(), ..self }
    }

    /// Returns the cache of a type's kind. All callers share it, as do controllers that own or watch the kind.
    ///
    /// [`fill`](Self::fill) fills it, which a manager calls; also if that runs already: then wait for [`Cache::synced`].
    pub fn cache<K: StaticKind>(&self) -> Arc<Cache<K>> {
        self.cache_of(&Kind::known(), None)
    }

    /// Returns the cache of a kind's objects with these labels, or [by fields](Selector). A controller that is
    /// [selecting](crate::Controller::selecting) them shares it. An [`ApplySet`](crate::apply::ApplySet) with it needs the permission to
    /// `get` the kind: before it creates an object, it looks whether there is one without the labels.
    pub fn cache_selecting<K: StaticKind>(&self, selector: impl Into<Selector>) -> Arc<Cache<K>> {
        self.selected(&Kind::known(), &selector.into())
    }

    /// Returns the cache of any kind, as [`cache`](Self::cache), or with `labels` as [`cache_selecting`](Self::cache_selecting).
    pub fn cache_of<K: Object>(&self, kind: &Kind<K>, labels: Option<&str>) -> Arc<Cache<K>> {
        self.selected(kind, &labels.map(Selector::labels).unwrap_or_default())
    }

    /// Returns the objects of a kind of which few are needed, and the others may be large: only their metadata is cached.
    pub fn cache_on_demand<K: StaticKind>(&self) -> OnDemand<K>
    where
        PartialObjectMeta<K>: StaticKind,
    {
        OnDemand::new(self.cache())
    }

    /// As [`cache_of`](Self::cache_of), with any selector.
    ///
    /// # Panics
    /// Never: caches are stored by type.
    pub fn selected<K: Object>(&self, kind: &Kind<K>, selector: &Selector) -> Arc<Cache<K>> {
        let id = (TypeId::of::<K>(), kind.path(), selector.clone());
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.entry(id).or_insert_with(|| {
            let entry = self.entry(kind, selector);
            if let Some(Filling { client, limit, added }) = &*self.filling() {
                // Fails if nothing is filled any more.
                (entry.start)(client, *limit).into_iter().for_each(|feed| drop(added.send(feed)));
            }
            entry
        });
        entry.cache.clone().downcast().expect("caches are stored by type")
    }

    fn entry<K: Object>(&self, kind: &Kind<K>, selector: &Selector) -> Entry {
        let namespaces: Vec<_> = match &self.scope {
            Scope::Namespaces(names) if kind.is_namespaced() => names.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        let cache = Cache::new(kind.clone(), namespaces.len()).limited(&self.scope, selector);
        let cache = Arc::new(cache.counted(self.metrics.misfits(&kind.group(), &kind.name())));
        let selector = selector.clone();
        let (filled, awaited) = (cache.clone(), cache.clone());
        let troubles: Vec<_> = namespaces.iter().map(|_| Arc::<WatchHealth>::default()).collect();
        let watched: Vec<_> = namespaces.into_iter().zip(troubles.clone()).collect();
        let start = move |client: &Client, limit: Duration| {
            let feed = |(namespace, trouble): &(Option<String>, Arc<WatchHealth>)| {
                let path = filled.kind().path_in(namespace.as_deref());
                let source = Source::new(client.clone(), path, selector.clone(), limit);
                let source = source.of_metadata(K::metadata_api());
                let listing = Listing::of(namespace.clone());
                Box::pin(Reflector::new(source, filled.clone(), listing, trouble.clone()).run()) as Task
            };
            watched.iter().map(feed).collect()
        };
        let synced = move || {
            let cache = awaited.clone();
            Box::pin(async move { cache.synced().await }) as Task
        };
        let kind = kind.name().into_owned();
        Entry { cache, kind, start: Box::new(start), synced: Box::new(synced), troubles }
    }

    fn filling(&self) -> MutexGuard<'_, Option<Filling>> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills the caches, for as long as it is polled: the existing ones, and those that are added meanwhile. Call it once, inside
    /// the runtime. It does not end.
    ///
    /// # Panics
    /// If a watch panics.
    pub async fn fill(&self, client: &Client) {
        self.fill_within(client, ANSWER_LIMIT).await;
    }

    pub(crate) async fn fill_within(&self, client: &Client, limit: Duration) {
        let (added, mut more) = mpsc::unbounded_channel();
        let mut feeds = JoinSet::new();
        {
            let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            *self.filling() = Some(Filling { client: client.clone(), limit, added });
            for feed in entries.values().flat_map(|entry| (entry.start)(client, limit)) {
                feeds.spawn(feed);
            }
        }
        loop {
            tokio::select! {
                Some(feed) = more.recv() => drop(feeds.spawn(feed)),
                Some(ended) = feeds.join_next() => match ended.map_err(JoinError::try_into_panic) {
                    Err(Ok(panic)) => std::panic::resume_unwind(panic),
                    // A watch runs for ever.
                    Ok(()) | Err(Err(_)) => return,
                },
                else => std::future::pending().await,
            }
        }
    }

    /// Makes every watch that has failed, and has delivered nothing since, list immediately. Completes when each of these
    /// has succeeded, or failed again.
    pub(crate) fn catch_up(&self) -> impl Future<Output = ()> + Send + use<> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let troubles: Vec<_> = entries.values().flat_map(|entry| entry.troubles.iter().cloned()).collect();
        let all = troubles.into_iter().map(|trouble| async move { trouble.catch_up().await });
        futures::future::join_all(all).map(drop)
    }

    /// Returns the kind of each cache, and a future that completes when it is synced.
    pub fn synced(&self) -> Vec<(String, BoxFuture<'static, ()>)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().map(|entry| (entry.kind.clone(), (entry.synced)())).collect()
    }
}

impl std::fmt::Debug for Caches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Caches").field("scope", &self.scope).finish_non_exhaustive()
    }
}

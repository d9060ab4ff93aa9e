//! The caches of a program.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use kube::core::PartialObjectMeta;

use super::reflector::Reflector;
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
pub struct Caches {
    scope: Scope,
    entries: Mutex<HashMap<Id, Entry>>,
    figures: CacheMetrics,
}

/// The type, since a kind can be decoded as several types; the path, since a type can be of several kinds; and the selector.
type Id = (TypeId, String, Option<String>);
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
        Self { scope, entries: Mutex::default(), figures: CacheMetrics::default() }
    }

    pub(crate) fn counted(self, metrics: &Metrics) -> Self {
        Self { figures: metrics.of_caches(), ..self }
    }

    /// Returns the cache of a type's kind, limited to objects with these labels if there is a selector. All callers share it.
    ///
    /// [`feeds`](Self::feeds) fills it.
    pub fn of<K: StaticKind>(&self, selector: Option<&str>) -> Arc<Cache<K>> {
        self.of_kind(&Kind::known(), selector)
    }

    /// As [`of`](Self::of), for any kind.
    ///
    /// # Panics
    /// Never: caches are stored by type.
    pub fn of_kind<K: Object>(&self, kind: &Kind<K>, selector: Option<&str>) -> Arc<Cache<K>> {
        let id = (TypeId::of::<K>(), kind.path(), selector.map(ToOwned::to_owned));
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = entries.entry(id).or_insert_with(|| self.entry(kind, selector)).cache.clone();
        cache.downcast().expect("caches are stored by type")
    }

    /// Returns the objects of a type's kind with only their metadata in a cache, which all callers share.
    pub fn on_demand<K: StaticKind>(&self) -> OnDemand<K>
    where
        PartialObjectMeta<K>: StaticKind,
    {
        OnDemand::new(self.of(None))
    }

    fn entry<K: Object>(&self, kind: &Kind<K>, selector: Option<&str>) -> Entry {
        let namespaces: Vec<_> = match &self.scope {
            Scope::Namespaces(names) if kind.is_namespaced() => names.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        let cache = Cache::new(kind.clone(), namespaces.len()).limited(&self.scope, selector);
        let cache = Arc::new(cache.counted(self.figures.misfits(&kind.group(), &kind.name())));
        let selector = selector.map(ToOwned::to_owned);
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

    /// Returns the futures that fill the existing caches, for as long as they are polled. Call it once.
    pub fn feeds(&self, client: &Client) -> Vec<BoxFuture<'static, ()>> {
        self.feeds_within(client, ANSWER_LIMIT)
    }

    pub(crate) fn feeds_within(&self, client: &Client, limit: Duration) -> Vec<BoxFuture<'static, ()>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().flat_map(|entry| (entry.start)(client, limit)).collect()
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

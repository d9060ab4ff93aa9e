//! One cache for each kind.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use kube::Client;
use kube::runtime::watcher;

use super::{Cache, Listing, feed};
use crate::{Kind, Known, Object};

/// In which namespaces is watched. Kinds without namespaces are watched whatever it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In all; needs permission for the whole cluster.
    All,
    /// In these; permission in each of them is enough.
    Namespaces(BTreeSet<String>),
}

impl Scope {
    /// These namespaces.
    pub fn namespaces(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Namespaces(names.into_iter().map(Into::into).collect())
    }
}

/// The caches of a program: one for each kind and selector, filled by one watch in each namespace.
pub struct Caches {
    scope: Scope,
    entries: Mutex<HashMap<Id, Entry>>,
}

/// The type, since a kind may be read as several; where the kind is, since a type may be several; and the selector.
type Id = (TypeId, String, Option<String>);
type Task = BoxFuture<'static, ()>;
type Start = Box<dyn Fn(&Client) -> Vec<Task> + Send>;

struct Entry {
    cache: Arc<dyn Any + Send + Sync>,
    kind: String,
    start: Start,
    synced: Box<dyn Fn() -> Task + Send>,
}

impl Caches {
    /// None yet.
    pub fn new(scope: Scope) -> Self {
        Self { scope, entries: Mutex::default() }
    }

    /// The cache of the kind of a type, of the objects with these labels if there is a selector. The same one whoever asks.
    ///
    /// It is filled by [`feeds`](Self::feeds).
    pub fn of<K: Known>(&self, selector: Option<&str>) -> Arc<Cache<K>> {
        self.of_kind(&Kind::known(), selector)
    }

    /// As [`of`](Self::of), of any kind.
    ///
    /// # Panics
    /// Never: a type is not mistaken for another.
    pub fn of_kind<K: Object>(&self, kind: &Kind<K>, selector: Option<&str>) -> Arc<Cache<K>> {
        let id = (TypeId::of::<K>(), kind.path(), selector.map(ToOwned::to_owned));
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = entries.entry(id).or_insert_with(|| self.entry(kind, selector)).cache.clone();
        cache.downcast().expect("it is kept under its type")
    }

    fn entry<K: Object>(&self, kind: &Kind<K>, selector: Option<&str>) -> Entry {
        let namespaces: Vec<_> = match &self.scope {
            Scope::Namespaces(names) if kind.is_namespaced() => names.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        let cache = Arc::new(Cache::new(kind.clone(), namespaces.len()).limited(&self.scope, selector.is_some()));
        let label_selector = selector.map(ToOwned::to_owned);
        let config = watcher::Config { label_selector, ..watcher::Config::default() };
        let (filled, awaited) = (cache.clone(), cache.clone());
        let start = move |client: &Client| {
            let feed = |namespace: &Option<String>| {
                let api = filled.kind().api(client.clone(), namespace.as_deref());
                let listing = Listing { namespace: namespace.clone(), objects: HashMap::new(), complete: false };
                Box::pin(feed::feed(api, config.clone(), filled.clone(), listing)) as Task
            };
            namespaces.iter().map(feed).collect()
        };
        let synced = move || {
            let cache = awaited.clone();
            Box::pin(async move { cache.synced().await }) as Task
        };
        Entry { cache, kind: kind.name().into_owned(), start: Box::new(start), synced: Box::new(synced) }
    }

    /// What fills the caches that there are now, for as long as it is polled. Call it once.
    pub fn feeds(&self, client: &Client) -> Vec<BoxFuture<'static, ()>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.values().flat_map(|entry| (entry.start)(client)).collect()
    }

    /// The kinds of the caches, each with what waits until it is synced.
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

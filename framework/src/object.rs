//! Kinds that can be watched, whether they are in namespaces or not.

use std::fmt::Debug;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind whose group, version and name are known when the program is compiled: those of `k8s_openapi`, and those that derive
/// `kube::CustomResource`.
///
/// It has to read what it writes: [caches](crate::cache) keep objects as JSON.
pub trait Object:
    Resource<DynamicType = (), Scope: Reach<Self>> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope: Reach<K>>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// Whether a kind's objects are in namespaces.
pub trait Reach<K> {
    /// Whether they are.
    const NAMESPACED: bool;

    /// All objects, or those of a namespace if there are any.
    fn api(client: Client, namespace: Option<&str>) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Reach<K> for NamespaceResourceScope {
    const NAMESPACED: bool = true;

    fn api(client: Client, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

impl<K: Resource<DynamicType = (), Scope = ClusterResourceScope>> Reach<K> for ClusterResourceScope {
    const NAMESPACED: bool = false;

    fn api(client: Client, _: Option<&str>) -> Api<K> {
        Api::all(client)
    }
}

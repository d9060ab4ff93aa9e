//! Kinds that can be watched: known at compile time, or discovered in a cluster.

use std::borrow::Cow;
use std::fmt::{self, Debug};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::discovery::{ApiResource, Scope};
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::{Api, Client, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// An object that can be watched: of a [`StaticKind`] kind, or `kube`'s `DynamicObject`, which can be of any [`Kind`].
///
/// It must decode what it encodes: [caches](crate::cache) keep responses to writes as JSON.
pub trait Object:
    Resource<DynamicType: Clone, Scope: ApiScope<Self>>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType: Clone, Scope: ApiScope<K>>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// A kind whose group, version and name are known at compile time: a type of `k8s_openapi`, or one that derives
/// `kube::CustomResource`.
pub trait StaticKind: Object + Resource<DynamicType = (), Scope: ScopeKind> {}

impl<K> StaticKind for K where K: Object + Resource<DynamicType = (), Scope: ScopeKind> {}

/// The scope of a kind that is known at compile time.
pub trait ScopeKind {
    /// Whether the kind is namespaced.
    const NAMESPACED: bool;
}

impl ScopeKind for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl ScopeKind for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// The scope of a kind, with the API that it implies.
pub trait ApiScope<K: Resource> {
    /// Returns the API of all objects, or of those in `namespace` if the kind is namespaced.
    fn api(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> ApiScope<K> for NamespaceResourceScope {
    fn api(client: Client, (): &(), namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

impl<K: Resource<DynamicType = (), Scope = ClusterResourceScope>> ApiScope<K> for ClusterResourceScope {
    fn api(client: Client, (): &(), _: Option<&str>) -> Api<K> {
        Api::all(client)
    }
}

impl<K: Resource<Scope = DynamicResourceScope>> ApiScope<K> for DynamicResourceScope {
    fn api(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, kind),
            None => Api::all_with(client, kind),
        }
    }
}

/// Why a kind could not be discovered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// The apiserver does not serve the kind.
    #[error(
        "the apiserver has no {kind} in {api_version}: install its definition, or look for the name in `kubectl api-resources`"
    )]
    Missing {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The request failed.
    #[error("cannot discover {kind} in {api_version}")]
    Refused {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
        /// The error of the request.
        source: Box<kube::Error>,
    },
}

/// The kind of objects of type `K`. Most types have one kind; a `DynamicObject` may be of any.
///
/// ```no_run
/// use kube::core::{DynamicObject, GroupVersionKind};
/// use trishanku_framework::{Controller, Kind, Manager, Reconciler};
///
/// # async fn example(config: kube::Config, reconciler: impl Reconciler<Object = DynamicObject>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = kube::Client::try_from(config.clone())?;
/// let tank = Kind::discover(&client, &GroupVersionKind::gvk("plant.example.org", "v1", "Tank")).await?;
/// let valve = Kind::<DynamicObject>::discover(&client, &GroupVersionKind::gvk("plant.example.org", "v1", "Valve")).await?;
/// let controller = Controller::of_kind(tank, "tank", reconciler).owns_kind(&valve);
/// Manager::new(config).controller(controller).run(std::future::pending()).await?;
/// # Ok(())
/// # }
/// ```
pub struct Kind<K: Resource> {
    dynamic: K::DynamicType,
    namespaced: bool,
}

impl<K: StaticKind> Kind<K> {
    /// Returns the kind of the type.
    pub fn known() -> Self {
        Self { dynamic: (), namespaced: K::Scope::NAMESPACED }
    }
}

impl<K: Object + Resource<DynamicType = ApiResource>> Kind<K> {
    /// Creates a kind without discovery. If the apiserver does not serve the resource, its cache never syncs, and the manager
    /// waits for it.
    pub fn new(resource: ApiResource, namespaced: bool) -> Self {
        Self { dynamic: resource, namespaced }
    }

    /// Discovers a kind: asks the apiserver for its plural, and whether it is namespaced.
    ///
    /// # Errors
    /// [`DiscoverError`].
    pub async fn discover(client: &Client, kind: &GroupVersionKind) -> Result<Self, DiscoverError> {
        let (resource, capabilities) = discovery::pinned_kind(client, kind).await.map_err(|error| {
            let (kind, api_version) = (kind.kind.clone(), kind.api_version());
            match error {
                // An unknown version is a 404; an unknown kind is absent from the version's list.
                kube::Error::Discovery(_) => DiscoverError::Missing { kind, api_version },
                kube::Error::Api(status) if status.is_not_found() || status.code == 404 => {
                    DiscoverError::Missing { kind, api_version }
                }
                source => DiscoverError::Refused { kind, api_version, source: Box::new(source) },
            }
        })?;
        Ok(Self::new(resource, capabilities.scope == Scope::Namespaced))
    }
}

impl<K: Object> Kind<K> {
    /// Returns the name, such as `Tank`.
    pub fn name(&self) -> Cow<'_, str> {
        K::kind(&self.dynamic)
    }

    /// Returns the group; empty for the core group.
    pub fn group(&self) -> Cow<'_, str> {
        K::group(&self.dynamic)
    }

    /// Returns the group and version, such as `plant.example.org/v1`; `v1` for the core group.
    pub fn api_version(&self) -> Cow<'_, str> {
        K::api_version(&self.dynamic)
    }

    /// Returns whether the kind is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// Returns the API of all objects, or of those in `namespace` if the kind is namespaced.
    pub fn api(&self, client: Client, namespace: Option<&str>) -> Api<K> {
        K::Scope::api(client, &self.dynamic, namespace.filter(|_| self.namespaced))
    }

    /// Returns the kind as kube describes it.
    pub fn dynamic(&self) -> &K::DynamicType {
        &self.dynamic
    }

    /// Returns the URL path of all objects; the same for every Rust type of the kind.
    pub(crate) fn path(&self) -> String {
        self.path_in(None)
    }

    /// Returns the URL path of the objects in `namespace`, if the kind is namespaced.
    pub(crate) fn path_in(&self, namespace: Option<&str>) -> String {
        K::url_path(&self.dynamic, namespace.filter(|_| self.namespaced))
    }

    /// Returns `apiVersion` and `kind`, as an object has them.
    pub(crate) fn types(&self) -> [(&'static str, Cow<'_, str>); 2] {
        [("apiVersion", K::api_version(&self.dynamic)), ("kind", self.name())]
    }
}

impl<K: Object> Clone for Kind<K> {
    fn clone(&self) -> Self {
        Self { dynamic: self.dynamic.clone(), namespaced: self.namespaced }
    }
}

impl<K: Object> Debug for Kind<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind").field("path", &self.path()).field("namespaced", &self.namespaced).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use kube::core::DynamicObject;

    use super::*;

    #[test]
    fn a_kind_is_the_same_whichever_type_stands_for_it() {
        let dynamic = |kind, namespaced| {
            Kind::<DynamicObject>::new(ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind)), namespaced)
        };
        let (pod, node) = (Kind::<Pod>::known(), Kind::<Node>::known());
        assert_eq!((pod.path(), node.path()), (dynamic("Pod", true).path(), dynamic("Node", false).path()));
        assert_eq!((pod.is_namespaced(), node.is_namespaced()), (true, false));
        assert_eq!(pod.types(), dynamic("Pod", true).types());
        assert_eq!(format!("{node:?}"), r#"Kind { path: "/api/v1/nodes", namespaced: false, .. }"#);
    }
}

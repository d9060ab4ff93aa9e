//! Kinds that can be watched: those that are known when the program is compiled, and those that it finds in a cluster.

use std::borrow::Cow;
use std::fmt::{self, Debug};

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::discovery::{ApiResource, Scope};
use kube::core::{DynamicResourceScope, GroupVersionKind};
use kube::{Api, Client, Resource, discovery};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Objects that can be watched: those of [`Known`] kinds, and `kube`'s `DynamicObject`, which can be of any [`Kind`].
///
/// They have to read what they write: [caches](crate::cache) keep answers to writes as JSON.
pub trait Object:
    Resource<DynamicType: Clone, Scope: Reach<Self>> + Clone + Debug + DeserializeOwned + Serialize + Send + Sync + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType: Clone, Scope: Reach<K>>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
        + Send
        + Sync
        + 'static
{
}

/// A kind whose group, version and name are known when the program is compiled: those of `k8s_openapi`, and those that derive
/// `kube::CustomResource`.
pub trait Known: Object + Resource<DynamicType = (), Scope: Extent> {}

impl<K> Known for K where K: Object + Resource<DynamicType = (), Scope: Extent> {}

/// Whether a kind's objects are in namespaces.
pub trait Extent {
    /// Whether they are.
    const NAMESPACED: bool;
}

impl Extent for NamespaceResourceScope {
    const NAMESPACED: bool = true;
}

impl Extent for ClusterResourceScope {
    const NAMESPACED: bool = false;
}

/// Where a kind's objects are found.
pub trait Reach<K: Resource> {
    /// All objects, or those of a namespace if there are any.
    fn api(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K>;
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Reach<K> for NamespaceResourceScope {
    fn api(client: Client, (): &(), namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        }
    }
}

impl<K: Resource<DynamicType = (), Scope = ClusterResourceScope>> Reach<K> for ClusterResourceScope {
    fn api(client: Client, (): &(), _: Option<&str>) -> Api<K> {
        Api::all(client)
    }
}

impl<K: Resource<Scope = DynamicResourceScope>> Reach<K> for DynamicResourceScope {
    fn api(client: Client, kind: &K::DynamicType, namespace: Option<&str>) -> Api<K> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, kind),
            None => Api::all_with(client, kind),
        }
    }
}

/// Why a kind is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// There is none of that name now.
    #[error(
        "the apiserver has no {kind} in {api_version}: install its definition, or look for the name in `kubectl api-resources`"
    )]
    Missing {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
    },
    /// The apiserver did not tell.
    #[error("cannot ask for {kind} in {api_version}")]
    Refused {
        /// The kind.
        kind: String,
        /// Its group and version.
        api_version: String,
        /// What it said.
        source: Box<kube::Error>,
    },
}

/// Which kind objects of type `K` are. For most types there is one; a `DynamicObject` may be of any.
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

impl<K: Known> Kind<K> {
    /// That of the type.
    pub fn known() -> Self {
        Self { dynamic: (), namespaced: K::Scope::NAMESPACED }
    }
}

impl<K: Object + Resource<DynamicType = ApiResource>> Kind<K> {
    /// One that is known in some other way. A plural that the apiserver does not know is a kind that is not there: what waits for its objects waits.
    pub fn new(resource: ApiResource, namespaced: bool) -> Self {
        Self { dynamic: resource, namespaced }
    }

    /// The kind that the apiserver has under this name: asks it for the plural, and whether its objects are in namespaces.
    ///
    /// # Errors
    /// [`DiscoverError`].
    pub async fn discover(client: &Client, kind: &GroupVersionKind) -> Result<Self, DiscoverError> {
        let (resource, capabilities) = discovery::pinned_kind(client, kind).await.map_err(|error| {
            let (kind, api_version) = (kind.kind.clone(), kind.api_version());
            match error {
                // Without the version there is a page that is not found, and without the kind one that lacks it.
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
    /// Its name, such as `Tank`.
    pub fn name(&self) -> Cow<'_, str> {
        K::kind(&self.dynamic)
    }

    /// Its group; empty for that of pods.
    pub fn group(&self) -> Cow<'_, str> {
        K::group(&self.dynamic)
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// All of its objects, or those of a namespace if they are in namespaces.
    pub fn api(&self, client: Client, namespace: Option<&str>) -> Api<K> {
        K::Scope::api(client, &self.dynamic, namespace.filter(|_| self.namespaced))
    }

    /// What kube wants to know.
    pub fn dynamic(&self) -> &K::DynamicType {
        &self.dynamic
    }

    /// Where its objects are; the same for every type that stands for it.
    pub(crate) fn path(&self) -> String {
        self.path_in(None)
    }

    /// Where those of a namespace are, if they are in namespaces.
    pub(crate) fn path_in(&self, namespace: Option<&str>) -> String {
        K::url_path(&self.dynamic, namespace.filter(|_| self.namespaced))
    }

    /// `apiVersion` and `kind`, as an object has them.
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

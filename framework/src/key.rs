//! Keys of objects.

use std::fmt;
use std::sync::Arc;

use kube::Resource;

/// Namespace and name of an object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl Key {
    /// Returns the key of an object in a namespace.
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// Returns the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// Returns the key of an object from the apiserver; the name is empty if the object has none.
    pub fn of(object: &impl Resource) -> Self {
        let metadata = object.meta();
        let name = metadata.name.as_deref().unwrap_or_default();
        Self { namespace: metadata.namespace.as_deref().map(Into::into), name: name.into() }
    }

    /// Returns the namespace, if the kind is namespaced.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

//! References to objects in the pod's namespace.

use super::files::Files;

/// A Secret in the pod's namespace. Its existence is not checked: kubelet waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretRef {
    pub(super) name: String,
}

impl SecretRef {
    /// References the Secret with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// References one of its values: for [`env`](super::Container::env) and [`kubeconfig`](super::Pod::kubeconfig).
    pub fn key(&self, key: impl Into<String>) -> SecretKey {
        SecretKey { secret: self.clone(), key: key.into(), optional: None }
    }

    /// Returns its values as files: for [`volume`](super::Pod::volume).
    pub fn files(&self) -> Files {
        Files::of_secret(self.name.clone())
    }
}

/// A `ConfigMap` in the pod's namespace. Its existence is not checked: kubelet waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapRef {
    pub(super) name: String,
}

impl ConfigMapRef {
    /// References the `ConfigMap` with this name.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// References one of its values: for [`env`](super::Container::env).
    pub fn key(&self, key: impl Into<String>) -> ConfigMapKey {
        ConfigMapKey { map: self.clone(), key: key.into(), optional: None }
    }

    /// Returns its values as files: for [`volume`](super::Pod::volume).
    pub fn files(&self) -> Files {
        Files::of_config_map(self.name.clone())
    }
}

/// A value of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    pub(super) secret: SecretRef,
    pub(super) key: String,
    pub(super) optional: Option<bool>,
}

impl SecretKey {
    /// Makes the value optional: without it, the container starts, and its variable or file is missing.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = Some(true);
        self
    }
}

/// A value of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapKey {
    pub(super) map: ConfigMapRef,
    pub(super) key: String,
    pub(super) optional: Option<bool>,
}

impl ConfigMapKey {
    /// Makes the value optional: without it, the container starts, and its variable is missing.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = Some(true);
        self
    }
}

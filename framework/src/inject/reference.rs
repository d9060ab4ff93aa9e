//! References to objects in the pod's namespace.

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVarSource, ObjectFieldSelector, SecretKeySelector};

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
        SecretKey { secret: self.clone(), key: key.into() }
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
        ConfigMapKey { map: self.clone(), key: key.into() }
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
}

/// A value of a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapKey {
    map: ConfigMapRef,
    key: String,
}

/// A field of the pod itself: `metadata.name`, `status.podIP`, `metadata.annotations['x']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRef {
    pub(super) path: String,
}

impl FieldRef {
    /// References the field at this path.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }
}

/// The value of an environment variable, or its source.
///
/// Kubernetes replaces `$(NAME)` in a literal with the variable of that name.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvValue {
    pub(super) literal: Option<String>,
    pub(super) source: Option<EnvVarSource>,
}

impl EnvValue {
    fn from_source(source: EnvVarSource) -> Self {
        Self { literal: None, source: Some(source) }
    }
}

impl From<String> for EnvValue {
    fn from(value: String) -> Self {
        // An apiserver drops an empty value.
        Self { literal: Some(value).filter(|value| !value.is_empty()), source: None }
    }
}

impl From<&str> for EnvValue {
    fn from(value: &str) -> Self {
        Self::from(value.to_owned())
    }
}

impl From<SecretKey> for EnvValue {
    fn from(SecretKey { secret, key }: SecretKey) -> Self {
        let selector = SecretKeySelector { name: secret.name, key, optional: None };
        Self::from_source(EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() })
    }
}

impl From<ConfigMapKey> for EnvValue {
    fn from(ConfigMapKey { map, key }: ConfigMapKey) -> Self {
        let selector = ConfigMapKeySelector { name: map.name, key, optional: None };
        Self::from_source(EnvVarSource { config_map_key_ref: Some(selector), ..EnvVarSource::default() })
    }
}

impl From<FieldRef> for EnvValue {
    fn from(field: FieldRef) -> Self {
        Self::from_source(EnvVarSource { field_ref: Some(field.selector()), ..EnvVarSource::default() })
    }
}

impl FieldRef {
    pub(super) fn selector(self) -> ObjectFieldSelector {
        ObjectFieldSelector { api_version: None, field_path: self.path }
    }
}

//! Environment variables and their sources.

use k8s_openapi::api::core::v1::{
    ConfigMapEnvSource, ConfigMapKeySelector, EnvFromSource, EnvVarSource, ObjectFieldSelector, ResourceFieldSelector,
    SecretEnvSource, SecretKeySelector,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::reference::{ConfigMapKey, ConfigMapRef, SecretKey, SecretRef};

/// A field of the pod itself: `metadata.name`, `status.podIP`, `metadata.annotations['x']`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRef {
    path: String,
}

impl FieldRef {
    /// References the field at this path.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }

    pub(super) fn selector(self) -> ObjectFieldSelector {
        ObjectFieldSelector { api_version: None, field_path: self.path }
    }
}

/// A request or a limit of the container that has the variable: `limits.cpu`, `requests.memory`.
///
/// If the container has no such limit, the value is what the node can allocate.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceFieldRef {
    resource: String,
    divisor: Option<Quantity>,
}

impl ResourceFieldRef {
    /// References the limit of a resource: `cpu`, `memory`, `ephemeral-storage`, `hugepages-2Mi`.
    pub fn limit(resource: impl AsRef<str>) -> Self {
        Self { resource: format!("limits.{}", resource.as_ref()), divisor: None }
    }

    /// References the request of a resource: `cpu`, `memory`, `ephemeral-storage`, `hugepages-2Mi`.
    pub fn request(resource: impl AsRef<str>) -> Self {
        Self { resource: format!("requests.{}", resource.as_ref()), divisor: None }
    }

    /// Sets the unit of the value, which is rounded up to whole units: `1m` for CPUs, `1Mi` for memory; by default CPUs and
    /// bytes.
    #[must_use]
    pub fn divisor(mut self, divisor: impl Into<String>) -> Self {
        self.divisor = Some(Quantity(divisor.into()));
        self
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
    fn from(SecretKey { secret, key, optional }: SecretKey) -> Self {
        let selector = SecretKeySelector { name: secret.name, key, optional };
        Self::from_source(EnvVarSource { secret_key_ref: Some(selector), ..EnvVarSource::default() })
    }
}

impl From<ConfigMapKey> for EnvValue {
    fn from(ConfigMapKey { map, key, optional }: ConfigMapKey) -> Self {
        let selector = ConfigMapKeySelector { name: map.name, key, optional };
        Self::from_source(EnvVarSource { config_map_key_ref: Some(selector), ..EnvVarSource::default() })
    }
}

impl From<FieldRef> for EnvValue {
    fn from(field: FieldRef) -> Self {
        Self::from_source(EnvVarSource { field_ref: Some(field.selector()), ..EnvVarSource::default() })
    }
}

impl From<ResourceFieldRef> for EnvValue {
    fn from(ResourceFieldRef { resource, divisor }: ResourceFieldRef) -> Self {
        let selector = ResourceFieldSelector { container_name: None, divisor, resource };
        Self::from_source(EnvVarSource { resource_field_ref: Some(selector), ..EnvVarSource::default() })
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Origin {
    Secret(String),
    ConfigMap(String),
}

/// All values of a Secret or a `ConfigMap` as environment variables. A [`SecretRef`] or a [`ConfigMapRef`] alone converts
/// into it.
///
/// ```
/// use trishanku_framework::inject::{EnvFrom, SecretRef};
///
/// let variables = EnvFrom::from(&SecretRef::named("git")).prefix("GIT_").optional();
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct EnvFrom {
    origin: Origin,
    prefix: Option<String>,
    optional: Option<bool>,
}

impl EnvFrom {
    fn of(origin: Origin) -> Self {
        Self { origin, prefix: None, optional: None }
    }

    /// Sets what the names of the variables start with, before the keys.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into()).filter(|prefix| !prefix.is_empty());
        self
    }

    /// Makes the variables optional: the container starts without the Secret or the `ConfigMap`, too.
    pub fn optional(mut self) -> Self {
        self.optional = Some(true);
        self
    }

    pub(super) fn source(self) -> EnvFromSource {
        let Self { origin, prefix, optional } = self;
        let source = match origin {
            Origin::Secret(name) => {
                EnvFromSource { secret_ref: Some(SecretEnvSource { name, optional }), ..EnvFromSource::default() }
            }
            Origin::ConfigMap(name) => {
                let map = ConfigMapEnvSource { name, optional };
                EnvFromSource { config_map_ref: Some(map), ..EnvFromSource::default() }
            }
        };
        EnvFromSource { prefix, ..source }
    }
}

impl From<&SecretRef> for EnvFrom {
    fn from(secret: &SecretRef) -> Self {
        Self::of(Origin::Secret(secret.name.clone()))
    }
}

impl From<SecretRef> for EnvFrom {
    fn from(secret: SecretRef) -> Self {
        Self::of(Origin::Secret(secret.name))
    }
}

impl From<&ConfigMapRef> for EnvFrom {
    fn from(map: &ConfigMapRef) -> Self {
        Self::of(Origin::ConfigMap(map.name.clone()))
    }
}

impl From<ConfigMapRef> for EnvFrom {
    fn from(map: ConfigMapRef) -> Self {
        Self::of(Origin::ConfigMap(map.name))
    }
}

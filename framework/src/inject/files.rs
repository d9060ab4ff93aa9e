//! Values of Secrets and `ConfigMaps` as files.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, ConfigMapVolumeSource, KeyToPath, SecretProjection, SecretVolumeSource, Volume,
    VolumeProjection,
};

#[derive(Clone, Debug, PartialEq)]
enum Origin {
    Secret(String),
    ConfigMap(String),
}

/// The values of a Secret or a `ConfigMap` as files, which containers cannot write: all of them under their own names, unless
/// [`item`](Self::item) selects some.
#[derive(Clone, Debug, PartialEq)]
pub struct Files {
    origin: Origin,
    items: Vec<KeyToPath>,
    mode: Option<i32>,
    optional: Option<bool>,
}

impl Files {
    fn of(origin: Origin) -> Self {
        Self { origin, items: Vec::new(), mode: None, optional: None }
    }

    pub(super) fn of_secret(name: String) -> Self {
        Self::of(Origin::Secret(name))
    }

    pub(super) fn of_config_map(name: String) -> Self {
        Self::of(Origin::ConfigMap(name))
    }

    /// Selects a value, as a file with this relative path. Can be called several times; values that are not selected have no
    /// file.
    #[must_use]
    pub fn item(mut self, key: impl Into<String>, path: impl Into<String>) -> Self {
        self.items.push(KeyToPath { key: key.into(), path: path.into(), ..KeyToPath::default() });
        self
    }

    /// Sets the files' permissions; by default Kubernetes' `0o644`. In a [`Projected`](super::Projected) volume, only those
    /// of selected items.
    ///
    /// The files belong to root, unless the pod has an `fsGroup`: other users cannot read files that only their owner may
    /// read (`0o400`).
    #[must_use]
    pub fn mode(mut self, mode: u16) -> Self {
        self.mode = Some(mode.into());
        self
    }

    /// Makes the files optional: the pod starts without them, too.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = Some(true);
        self
    }

    fn items(items: Vec<KeyToPath>) -> Option<Vec<KeyToPath>> {
        Some(items).filter(|items| !items.is_empty())
    }

    // The mode is set apart: with it in the expression, those versions of Kubernetes that have no more fields would need no `..`.
    pub(super) fn volume(self) -> Volume {
        let (items, default_mode, optional) = (Self::items(self.items), self.mode, self.optional);
        match self.origin {
            Origin::Secret(name) => {
                let mut secret = SecretVolumeSource { secret_name: Some(name), items, optional, ..Default::default() };
                secret.default_mode = default_mode;
                Volume { secret: Some(secret), ..Volume::default() }
            }
            Origin::ConfigMap(name) => {
                let mut map = ConfigMapVolumeSource { name, items, optional, ..Default::default() };
                map.default_mode = default_mode;
                Volume { config_map: Some(map), ..Volume::default() }
            }
        }
    }

    pub(super) fn projection(self) -> VolumeProjection {
        let (mode, optional) = (self.mode, self.optional);
        let items = self.items.into_iter().map(|item| KeyToPath { mode, ..item }).collect();
        let items = Self::items(items);
        match self.origin {
            Origin::Secret(name) => {
                let secret = SecretProjection { name, items, optional };
                VolumeProjection { secret: Some(secret), ..VolumeProjection::default() }
            }
            Origin::ConfigMap(name) => {
                let map = ConfigMapProjection { name, items, optional };
                VolumeProjection { config_map: Some(map), ..VolumeProjection::default() }
            }
        }
    }
}

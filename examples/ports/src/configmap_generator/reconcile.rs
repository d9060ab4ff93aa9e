//! The reconciler.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::apply::Owned;
use trishanku_framework::{Action, Context, Error, Kinds, Reconciler, Result};

use super::kind::{ConfigMapGenerator, ConfigMapGeneratorSpec};

/// Keeps a `ConfigMap` for each object, of the same name.
pub struct GeneratorReconciler {
    maps: Owned<ConfigMap>,
}

impl GeneratorReconciler {
    /// Creates a reconciler that owns maps: a change of one reconciles its owner.
    pub fn new(kinds: &mut Kinds<'_>) -> Self {
        Self { maps: kinds.owned() }
    }
}

impl Reconciler for GeneratorReconciler {
    type Object = ConfigMapGenerator;
    type Error = Error;

    async fn reconcile(&self, generator: Arc<ConfigMapGenerator>, context: Context) -> Result<Action> {
        context.apply_set(&*generator).apply(config_map(&generator.spec), &self.maps).await?;
        Ok(Action::Change)
    }
}

/// Returns the `ConfigMap` of an object, which has its name.
pub fn config_map(spec: &ConfigMapGeneratorSpec) -> ConfigMap {
    ConfigMap { data: Some([("content".to_owned(), spec.content.clone())].into()), ..ConfigMap::default() }
}

//! A `ConfigMap` for each object: `configmapgen_controller` of kube-rs.

mod kind;
mod reconcile;

use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use trishanku_framework::cache::Cache;
use trishanku_framework::{Controller, Key};

pub use self::kind::{ConfigMapGenerator, ConfigMapGeneratorSpec};
pub use self::reconcile::{GeneratorReconciler, config_map};

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "configmap-generator";

/// Creates the controller, which reconciles two objects at a time.
pub fn controller() -> Controller<GeneratorReconciler> {
    Controller::set_up(NAME, GeneratorReconciler::new).concurrency(2)
}

/// Returns the keys of all objects whenever `ticks` yields: for [`Controller::reconcile_on`].
pub fn all_on(
    ticks: impl Stream<Item = ()> + Send + 'static,
    generators: Arc<Cache<ConfigMapGenerator>>,
) -> impl Stream<Item = Key> + Send + 'static {
    ticks.flat_map(move |()| stream::iter(generators.keys()))
}

//! A `ConfigMap` for each object: `configmapgen_controller` of kube-rs.

mod kind;
mod reconcile;

use trishanku_framework::Controller;

pub use self::kind::{ConfigMapGenerator, ConfigMapGeneratorSpec};
pub use self::reconcile::{GeneratorReconciler, config_map};

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "configmap-generator";

/// Creates the controller, which reconciles two objects at a time.
pub fn controller() -> Controller<GeneratorReconciler> {
    Controller::set_up(NAME, GeneratorReconciler::new).concurrency(2)
}

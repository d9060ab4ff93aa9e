//! A server in role groups: the `HelloCluster` of Stackable's hello-world-operator, without its logging.

mod config;
mod kind;
mod objects;
mod reconcile;

use trishanku_framework::{Controller, WithStatus};

pub use self::config::{Config, ConfigError, merged, properties};
pub use self::kind::{
    ClusterConfig, ClusterOperation, ConfigFragment, Group, HelloCluster, HelloClusterSpec, HelloClusterStatus, Image,
    ListenerClass, Overrides, PdbConfig, Role, RoleConfig,
};
pub use self::objects::{Identity, group_objects, role_objects};
pub use self::reconcile::{HelloReconciler, report};

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "hello-world";

/// The condition of a cluster that is paused.
pub const PAUSED: &str = "ReconciliationPaused";

/// Creates the controller.
pub fn controller() -> Controller<WithStatus<HelloReconciler>> {
    Controller::with_status(NAME, HelloReconciler::new)
        .paused_if(|cluster: &HelloCluster| cluster.spec.cluster_operation.reconciliation_paused)
        .pause_condition(PAUSED)
}

//! A controller for RainGauge objects.

mod kind;
mod reconcile;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::{Controller, Manager, lease};

pub use self::kind::{RainGauge, RainGaugeSpec, RainGaugeStatus};
pub use self::reconcile::RainGaugeReconciler;

/// Creates a manager with the controller. Its leader election lease is in this namespace.
pub fn manager(config: kube::Config, namespace: &str) -> Manager {
    let manager = Manager::new(config).leader_election(lease::Settings::new(namespace, "rain-gauge"));
    let reconciler = RainGaugeReconciler::new(&manager);
    manager.controller(Controller::new("rain-gauge", reconciler).owns::<ConfigMap>())
}

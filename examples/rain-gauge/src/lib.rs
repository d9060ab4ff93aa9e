//! A controller for RainGauge objects.

mod kind;
mod reconcile;

use trishanku_framework::{Controller, WithStatus};

pub use self::kind::{RainGauge, RainGaugeSpec, RainGaugeStatus};
pub use self::reconcile::RainGaugeReconciler;

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "rain-gauge";

/// Creates the controller.
pub fn controller() -> Controller<WithStatus<RainGaugeReconciler>> {
    Controller::with_status(NAME, RainGaugeReconciler::new)
}

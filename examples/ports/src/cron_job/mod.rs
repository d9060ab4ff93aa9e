//! Jobs on a schedule: the `CronJob` of kubebuilder's tutorial.

mod admission;
mod kind;
mod plan;
mod reconcile;
mod schedule;

use trishanku_framework::{Controller, WithStatus};

pub use self::admission::{hooks, validate, with_defaults};
pub use self::kind::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus, JobsStatus};
pub use self::plan::{AVAILABLE, Plan, SCHEDULED_AT, observe, plan};
pub use self::reconcile::CronJobReconciler;
pub use self::schedule::{Run, Schedule, ScheduleError};

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "cron-job";

/// Creates the controller.
pub fn controller() -> Controller<WithStatus<CronJobReconciler>> {
    Controller::with_status(NAME, CronJobReconciler::new)
}

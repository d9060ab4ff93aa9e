//! Jobs on a schedule: the `CronJob` of kubebuilder's tutorial.

mod admission;
mod kind;
mod plan;
mod reconcile;
mod schedule;

use k8s_openapi::jiff::Timestamp;
use trishanku_framework::{Controller, WithStatus};

pub use self::admission::{hooks, validate, with_defaults};
pub use self::kind::{ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus};
pub use self::plan::{AVAILABLE, Plan, SCHEDULED_AT, observe, plan};
pub use self::reconcile::CronJobReconciler;
pub use self::schedule::{Run, Schedule, ScheduleError};

/// The name of the program, of its lease, and of the field manager. It must never change.
pub const NAME: &str = "cron-job";

/// Creates the controller. `now` is the time of day; tests bring their own.
pub fn controller(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Controller<WithStatus<CronJobReconciler>> {
    Controller::with_status(NAME, |kinds| CronJobReconciler::new(kinds, now))
}

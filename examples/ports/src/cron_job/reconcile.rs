//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use trishanku_framework::apply::{Deletion, Owned};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Error, Kinds, Reported, StatusReconciler};

use super::kind::{CronJob, CronJobStatus};
use super::plan::{AVAILABLE, observe, plan};
use super::schedule::Schedule;

/// Starts the Jobs of each object.
pub struct CronJobReconciler {
    jobs: Owned<Job>,
}

impl CronJobReconciler {
    /// Creates a reconciler that owns Jobs: a change of one reconciles its owner.
    pub fn new(kinds: &mut Kinds<'_>) -> Self {
        Self { jobs: kinds.owned() }
    }

    fn jobs_of(&self, cron_job: &CronJob) -> Vec<Arc<Job>> {
        self.jobs.owned_by(cron_job.metadata.uid.as_deref().unwrap_or_default())
    }
}

impl StatusReconciler for CronJobReconciler {
    type Object = CronJob;
    type Error = Error;

    async fn reconcile(
        &self,
        cron_job: Arc<CronJob>,
        status: &mut CronJobStatus,
        context: Context,
    ) -> Reported<Action> {
        let schedule = Schedule::parse(&cron_job.spec.schedule);
        let plan = plan(&cron_job, schedule.as_ref().ok(), &self.jobs_of(&cron_job), context.now());
        let problem = match &schedule {
            Err(error) => Some(Report::stalled("InvalidSchedule", error.to_string())),
            Ok(_) => plan.problem(),
        };
        let mut set = context.apply_set(&*cron_job);
        for job in &plan.delete {
            if set.delete(&**job, &self.jobs).await? == Deletion::Changed {
                // It may have finished meanwhile: its change is another reconcile, with another plan.
                return Ok((Report::unchanged(), Action::Change));
            }
        }
        if let Some((job, time)) = plan.start {
            set.apply(job, &self.jobs).await.map_err(|error| Error::failed("JobCreationFailed", error))?;
            status.last_schedule_time = Some(Time(time));
        }
        // The cache has the Job that was started, and no more those that were deleted.
        let report = observe(&cron_job, &self.jobs_of(&cron_job), problem, status);
        Ok((report, plan.next.map_or(Action::Change, |next| context.at(next))))
    }

    fn conditions(&self) -> &[&str] {
        &[AVAILABLE]
    }
}

//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, ResourceExt as _};
use trishanku_framework::apply::{ApplyError, Owned};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Failure, Kinds, Retry, StatusReconciler};

use super::kind::{CronJob, CronJobStatus};
use super::plan::{AVAILABLE, observe, plan};
use super::schedule::{Schedule, ScheduleError};

/// Starts the Jobs of each object.
pub struct CronJobReconciler {
    jobs: Owned<Job>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl CronJobReconciler {
    /// Creates a reconciler that owns Jobs: a change of one reconciles its owner.
    pub fn new(kinds: &mut Kinds<'_>, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self { jobs: kinds.owned(), now: Box::new(now) }
    }

    fn jobs_of(&self, cron_job: &CronJob) -> Vec<Arc<Job>> {
        self.jobs.owned_by(cron_job.metadata.uid.as_deref().unwrap_or_default())
    }
}

impl StatusReconciler for CronJobReconciler {
    type Object = CronJob;
    type Error = CronJobError;

    async fn reconcile(
        &self,
        cron_job: Arc<CronJob>,
        status: &mut CronJobStatus,
        context: Context,
    ) -> Result<(Report, Action), CronJobError> {
        let now = (self.now)();
        let schedule = Schedule::parse(&cron_job.spec.schedule);
        let plan = plan(&cron_job, schedule.as_ref().ok(), &self.jobs_of(&cron_job), now);
        for job in &plan.delete {
            delete(job, &context).await?;
        }
        if let Some((job, time)) = plan.start {
            context.apply_set(&*cron_job).apply(job, &self.jobs).await?;
            status.last_schedule_time = Some(Time(time));
        }
        // The cache has the Job that was started; those that were deleted leave it with the watch, which reconciles again.
        let report = observe(&cron_job, &self.jobs_of(&cron_job), plan.missed, now, status);
        schedule?;
        let next = plan.next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default());
        Ok((report, next.map_or(Action::Change, Action::After)))
    }

    fn conditions(&self) -> &[&str] {
        &[AVAILABLE]
    }

    fn is_reported(&self, error: &CronJobError) -> bool {
        !matches!(error, CronJobError::Delete(kube::Error::Api(status)) if status.is_conflict())
    }
}

/// Deletes a Job with its pods, as the cache has it: one that has finished meanwhile is a conflict, and stays.
async fn delete(job: &Job, context: &Context) -> Result<(), kube::Error> {
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &job.namespace().unwrap_or_default());
    let preconditions = Preconditions { uid: job.uid(), resource_version: job.resource_version() };
    match jobs.delete(&job.name_any(), &DeleteParams::background().preconditions(preconditions)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum CronJobError {
    /// The schedule cannot be parsed.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A Job cannot be created.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// A Job cannot be deleted.
    #[error(transparent)]
    Delete(#[from] kube::Error),
}

impl Failure for CronJobError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Schedule(_) => "InvalidSchedule",
            Self::Apply(_) => "JobCreationFailed",
            Self::Delete(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Schedule(_) => Retry::Terminal,
            Self::Apply(error) => error.retry(),
            Self::Delete(error) => error.retry(),
        }
    }
}

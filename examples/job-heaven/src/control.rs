//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use kube::core::DynamicObject;
use trishanku_framework::apply::{ApplyError, Owned};
use trishanku_framework::status::Report;
use trishanku_framework::{Action, Context, Failure, Key, Kinds, Retry, StatusReconciler};

use crate::kind::{JobHeaven, JobHeavenStatus};
use crate::plan::{Wrong, job, jobs, report};

/// Applies a Job for each object.
pub(crate) struct JobHeavenReconciler {
    jobs: Owned<DynamicObject>,
}

impl JobHeavenReconciler {
    pub(crate) fn new(kinds: &mut Kinds<'_>) -> Self {
        Self { jobs: kinds.owned_of(&jobs(), None) }
    }
}

impl StatusReconciler for JobHeavenReconciler {
    type Object = JobHeaven;
    type Error = Error;

    async fn reconcile(
        &self,
        object: Arc<JobHeaven>,
        _: &mut JobHeavenStatus,
        context: Context,
    ) -> Result<(Report, Action), Error> {
        let key = &context.key;
        let wanted = job(key.name(), &object.spec)?;
        // The template of a Job is immutable, so a Job that changes is replaced.
        context.apply_set(&*object).apply_or_recreate(wanted, &self.jobs).await?;
        let found = self.jobs.get(&Key::namespaced(key.namespace().unwrap_or_default(), key.name()));
        let created = || Report::reconciling("Applied", "the Job has just been created");
        Ok((found.map_or_else(created, |job| report(&job)), Action::Change))
    }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Apply(error) => error.reason(),
            Self::Wrong(_) => "InvalidSpec",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Apply(error) => error.retry(),
            Self::Wrong(_) => Retry::Terminal,
        }
    }
}

//! The reconciler: observe, plan, apply, report.

use std::sync::Arc;

use kube::core::DynamicObject;
use trishanku_framework::apply::{ApplyError, ApplySet};
use trishanku_framework::cache::Cache;
use trishanku_framework::status::{Report, StatusWriter, settle};
use trishanku_framework::{Action, Context, Failure, Key, Manager, Reconciler, Retry};

use crate::kind::JobHeaven;
use crate::plan::{Wrong, job, jobs, report};

const NAME: &str = "job-heaven";

/// Applies a Job for each object.
pub(crate) struct JobHeavenReconciler {
    objects: Arc<Cache<JobHeaven>>,
    jobs: Arc<Cache<DynamicObject>>,
    status: StatusWriter,
}

impl JobHeavenReconciler {
    pub(crate) fn new(manager: &Manager) -> Self {
        Self { objects: manager.cache(), jobs: manager.cache_of(&jobs(), None), status: StatusWriter::new(NAME) }
    }

    async fn converge(&self, object: &JobHeaven, context: &Context) -> Result<Option<Report>, Error> {
        let key = &context.key;
        let mut set = ApplySet::of(object, context.client.clone(), NAME);
        // The template of a Job is immutable, so a Job that changes is replaced.
        set.apply_or_recreate(job(key.name(), &object.spec)?, &self.jobs).await?;
        let key = Key::namespaced(key.namespace().unwrap_or_default(), key.name());
        Ok(self.jobs.get(&key).map(|job| report(&job)))
    }
}

impl Reconciler for JobHeavenReconciler {
    type Object = JobHeaven;
    type Error = Error;

    async fn reconcile(&self, object: Arc<JobHeaven>, context: Context) -> Result<Action, Error> {
        let result = self.converge(&object, &context).await;
        let report = match &result {
            Ok(Some(report)) => report.clone(),
            Ok(None) => Report::reconciling("Applied", "the Job has just been created"),
            Err(_) => Report::of(&result),
        };
        let status = object.status.clone().unwrap_or_default();
        let before = object.status.as_ref();
        let written = self.status.write(&context.client, &self.objects, &object, before, status, &report).await;
        settle(&context.key, result.map(|_| Action::Change), written)
    }
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Wrong(#[from] Wrong),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Api(error) => error.reason(),
            Self::Apply(error) => error.reason(),
            Self::Wrong(_) => "InvalidSpec",
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Api(error) => error.retry(),
            Self::Apply(error) => error.retry(),
            Self::Wrong(_) => Retry::Terminal,
        }
    }
}

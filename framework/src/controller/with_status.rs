//! Reconcilers whose statuses the controller writes.

use std::sync::Arc;
use std::time::Duration;

use kube::core::object::HasStatus;
use kube::{Client, Resource as _};
use serde::Serialize;

use super::builder::Seat;
use super::{Action, CleanedUp, Context, Reconciler};
use crate::cache::Cache;
use crate::error::chain;
use crate::status::{Condition, Conditions, Report, StatusWriter, settle};
use crate::{Failure, Key, Object, Retry};

/// The logic of a controller whose objects have a status with [`Conditions`]: as a [`Reconciler`], but the status is written for it.
/// Give it to [`Controller::with_status`](super::Controller::with_status).
///
/// `reconcile` gets the present status, or the default of one, and changes it in place. When it ends, **with success or an
/// error**, the controller puts the report (of the error, if there is one) into the conditions, and writes the status if it
/// differs: once, with an event for each transition. An error of that write fails the reconcile, but never hides an error of the
/// reconcile itself. A reconcile that exceeds its time limit is reported, too.
///
/// ```
/// use std::sync::Arc;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use trishanku_framework::apply::Owned;
/// use trishanku_framework::status::{ConditionedStatus, Report};
/// use trishanku_framework::{Action, Context, Controller, Error, Reported, StatusReconciler};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "example.org", version = "v1", kind = "Tank", namespaced, status = "TankStatus")]
/// struct TankSpec {
///     level: i32,
/// }
///
/// type TankStatus = ConditionedStatus<TankFields>;
///
/// #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
/// #[serde(default)]
/// struct TankFields {
///     valves: usize,
/// }
///
/// struct Tanks {
///     valves: Owned<ConfigMap>,
/// }
///
/// impl StatusReconciler for Tanks {
///     type Object = Tank;
///     type Error = Error;
///
///     async fn reconcile(&self, tank: Arc<Tank>, status: &mut TankStatus, context: Context) -> Reported<Action> {
///         // The ConfigMap gets the name of the tank.
///         context.apply_set(&*tank).apply(ConfigMap::default(), &self.valves).await?;
///         status.valves = 1;
///         Ok((Report::ready("Level", format!("at {} litres", tank.spec.level)), Action::Change))
///     }
/// }
///
/// let controller = Controller::with_status("tank", |kinds| Tanks { valves: kinds.owned() });
/// ```
pub trait StatusReconciler: Send + Sync + 'static {
    /// The kind of the objects.
    type Object: Object + HasStatus<Status: Conditions + Clone + Default + Serialize + Send + Sync>;
    /// The error of a reconcile.
    type Error: Failure;

    /// As [`Reconciler::reconcile`]. Returns what to report, and when to reconcile again.
    ///
    /// # Errors
    /// Any failure; [`Failure::retry`] decides when the object is retried, and [`Report::of`] how it is reported.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        status: &mut <Self::Object as HasStatus>::Status,
        context: Context,
    ) -> impl Future<Output = Result<(Report, Action), Self::Error>> + Send;

    /// As [`Reconciler::finalizer`].
    fn finalizer(&self) -> Option<&str> {
        None
    }

    /// As [`Reconciler::clean_up`]. The status is written as by a reconcile, but not after [`CleanedUp::Yes`].
    ///
    /// # Errors
    /// As [`reconcile`](Self::reconcile).
    fn clean_up(
        &self,
        object: Arc<Self::Object>,
        status: &mut <Self::Object as HasStatus>::Status,
        context: Context,
    ) -> impl Future<Output = Result<(Report, CleanedUp), Self::Error>> + Send {
        let (_, _, _) = (object, status, context);
        async { Ok((Report::reconciling("Deleting", ""), CleanedUp::Yes)) }
    }

    /// Returns the types of conditions that it writes besides `Ready`, `Reconciling` and `Stalled`: those that its reports
    /// [name](Report::and), and those that it sets in the status by itself. One that a report does not name stays as it is in the
    /// status. Conditions of other types belong to other writers, and stay.
    fn conditions(&self) -> &[&str] {
        &[]
    }

    /// Removes from a status what other writers write, so that this controller neither writes nor removes it.
    fn keep_own(&self, status: &mut <Self::Object as HasStatus>::Status) {
        let _ = status;
    }

    /// Returns whether a failure is reported in the status. It is logged and counted in any case. False is for failures that end
    /// within moments, such as a conflict with another writer.
    fn is_reported(&self, error: &Self::Error) -> bool {
        let _ = error;
        true
    }
}

/// The result of a [`StatusReconciler`]: what to report, and what to do next, which is an [`Action`] or [`CleanedUp`].
pub type Reported<T, E = crate::Error> = std::result::Result<(Report, T), E>;

/// A [`StatusReconciler`] as a [`Reconciler`].
pub struct WithStatus<R: StatusReconciler> {
    inner: R,
    cache: Arc<Cache<R::Object>>,
    writer: StatusWriter,
    pause_condition: Option<&'static str>,
}

/// The error of a reconcile, or of writing its status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError<E: Failure> {
    /// Of the reconcile.
    #[error(transparent)]
    Reconcile(E),
    /// Of writing the status of a reconcile that succeeded.
    #[error("cannot write the status")]
    Write(#[source] kube::Error),
}

impl<E: Failure> From<kube::Error> for StatusError<E> {
    fn from(error: kube::Error) -> Self {
        Self::Write(error)
    }
}

impl<E: Failure> Failure for StatusError<E> {
    fn reason(&self) -> &'static str {
        match self {
            Self::Reconcile(error) => error.reason(),
            Self::Write(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Reconcile(error) => error.retry(),
            Self::Write(error) => error.retry(),
        }
    }
}

type Status<R> = <<R as StatusReconciler>::Object as HasStatus>::Status;

impl<R: StatusReconciler> WithStatus<R> {
    pub(super) fn new(inner: R, seat: &Seat<R::Object>) -> Self {
        let writer = StatusWriter::with_recorder(&seat.field_manager, seat.recorder.clone());
        let own = inner.conditions().iter().copied().chain(seat.pause_condition);
        let mut writer = own.fold(writer, StatusWriter::condition);
        if !seat.events {
            writer = writer.without_events();
        }
        Self { inner, cache: seat.cache.clone(), writer, pause_condition: seat.pause_condition }
    }

    /// Writes `status` after a reconcile with this result, unless there is nothing to report.
    async fn settle<T>(
        &self,
        client: &Client,
        object: &R::Object,
        status: Status<R>,
        report: Option<Report>,
        result: Result<T, R::Error>,
    ) -> Result<T, StatusError<R::Error>> {
        let written = match report {
            Some(report) => self.write(client, object, self.latest(object), status, &report).await,
            None => self.end_pause(client, object).await,
        };
        settle(&Key::of(object), result.map_err(StatusError::Reconcile), written)
    }

    /// Returns the latest known status. The cache may have a newer one than `object`, if the reconcile wrote one itself.
    fn latest(&self, object: &R::Object) -> Option<Status<R>> {
        let latest = self.cache.get(&Key::of(object)).filter(|latest| latest.meta().uid == object.meta().uid);
        latest.as_deref().unwrap_or(object).status().cloned()
    }

    async fn write(
        &self,
        client: &Client,
        object: &R::Object,
        mut before: Option<Status<R>>,
        mut status: Status<R>,
        report: &Report,
    ) -> kube::Result<bool> {
        for status in before.iter_mut().chain([&mut status]) {
            self.inner.keep_own(status);
        }
        self.writer.write(client, &self.cache, object, before.as_ref(), status, report).await
    }

    /// Reports that a reconcile or a cleanup was cancelled because it exceeded its time limit.
    pub(super) async fn timed_out(&self, object: Arc<R::Object>, client: Client, limit: Duration) {
        let report = Report::reconciling("TimedOut", format!("a reconcile took longer than {limit:?}")).warns(true);
        let report = self.not_paused(report);
        let before = self.latest(&object);
        let status = before.clone().unwrap_or_default();
        let written = tokio::time::timeout(REPORT_LIMIT, self.write(&client, &object, before, status, &report)).await;
        if let Ok(Err(error)) = written {
            tracing::warn!(object = %Key::of(&*object), error = chain(&error), "cannot write the status of a failed reconcile");
        }
    }

    /// Reports that an object is paused, if there is a condition for that.
    pub(super) async fn report_pause(&self, object: Arc<R::Object>, client: Client) -> kube::Result<()> {
        let Some(condition) = self.pause_condition else { return Ok(()) };
        let report = Report::unchanged().and(condition, true, "Paused", "the object is not reconciled");
        let before = self.latest(&object);
        let status = before.clone().unwrap_or_default();
        self.write(&client, &object, before, status, &report).await.map(drop)
    }

    /// Reports that an object is no longer paused, and nothing else, if the status still shows the pause.
    async fn end_pause(&self, client: &Client, object: &R::Object) -> kube::Result<bool> {
        let before = self.latest(object);
        let mut status = before.clone().unwrap_or_default();
        let shows = |one: &Condition| Some(&*one.type_) == self.pause_condition && one.status == "True";
        if !status.conditions().iter().any(shows) {
            return Ok(false);
        }
        self.write(client, object, before, status, &self.not_paused(Report::unchanged())).await
    }

    /// Adds to the report of a reconcile that the object is not paused.
    fn not_paused(&self, report: Report) -> Report {
        let Some(condition) = self.pause_condition else { return report };
        report.and(condition, false, "NotPaused", "")
    }

    fn report_of<T>(&self, result: &Result<(Report, T), R::Error>) -> Option<Report> {
        let report = match result {
            Ok((report, _)) => Some(report.clone()),
            Err(error) => self.inner.is_reported(error).then(|| Report::of(result)),
        };
        report.map(|report| self.not_paused(report))
    }
}

impl<R: StatusReconciler> Reconciler for WithStatus<R> {
    type Object = R::Object;
    type Error = StatusError<R::Error>;

    async fn reconcile(&self, object: Arc<R::Object>, context: Context) -> Result<Action, Self::Error> {
        let (client, mut status) = (context.client.clone(), object.status().cloned().unwrap_or_default());
        let result = self.inner.reconcile(object.clone(), &mut status, context).await;
        let report = self.report_of(&result);
        self.settle(&client, &object, status, report, result.map(|(_, action)| action)).await
    }

    fn finalizer(&self) -> Option<&str> {
        self.inner.finalizer()
    }

    async fn clean_up(&self, object: Arc<R::Object>, context: Context) -> Result<CleanedUp, Self::Error> {
        let (client, mut status) = (context.client.clone(), object.status().cloned().unwrap_or_default());
        let result = self.inner.clean_up(object.clone(), &mut status, context).await;
        if let Ok((_, CleanedUp::Yes)) = result {
            // The object is gone in a moment, and its status with it.
            return Ok(CleanedUp::Yes);
        }
        let report = self.report_of(&result);
        self.settle(&client, &object, status, report, result.map(|(_, cleaned_up)| cleaned_up)).await
    }
}

/// How long the report of a reconcile that took too long may take: it is one request.
const REPORT_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;

//! Controllers: reconcilers with their triggers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, Stream, StreamExt};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Resource as _};

use super::kinds::{Connect, DeclareOwned, Kinds, declare, declare_kind, follow, follow_kind, owners};
use super::trigger::Owner;
use super::{Reconciler, StatusReconciler, WithStatus};
use crate::cache::{Cache, Change, Selector};
use crate::clock::WallClock;
use crate::queue::{Backoff, Settings};
use crate::status::{Recorder, assert_own};
use crate::{Key, Kind, Object, StaticKind};

/// Creates a reconciler, with the cache of its objects.
pub(super) type Make<R> = Box<dyn FnOnce(&mut Kinds<'_>, &Seat<<R as Reconciler>::Object>) -> R + Send>;
pub(super) type Triggers = Vec<BoxStream<'static, Key>>;
pub(super) type Predicate<K> = Box<dyn Fn(&Change<'_, K>) -> bool + Send + Sync>;
pub(super) type Pauses<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

/// Reports that a reconcile exceeded its time limit.
pub(super) type TimedOut<R> = for<'a> fn(&'a R, Arc<<R as Reconciler>::Object>, Client, Duration) -> BoxFuture<'a, ()>;

/// Reports that an object is paused.
pub(super) type ReportPause<R> =
    for<'a> fn(&'a R, Arc<<R as Reconciler>::Object>, Client) -> BoxFuture<'a, kube::Result<()>>;

/// What a controller has when its reconciler is created.
pub(super) struct Seat<K: Object> {
    pub(super) cache: Arc<Cache<K>>,
    pub(super) field_manager: Arc<str>,
    pub(super) recorder: Recorder,
    pub(super) events: bool,
    pub(super) pause_condition: Option<&'static str>,
}

/// A [`Reconciler`] with its triggers. Give it to a [`Manager`](crate::Manager).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
/// use k8s_openapi::api::core::v1::Node;
/// use trishanku_framework::{Action, Context, Controller, Key, Reconciler};
///
/// struct Rollout;
///
/// impl Reconciler for Rollout {
///     type Object = Deployment;
///     type Error = kube::Error;
///
///     async fn reconcile(&self, deployment: Arc<Deployment>, context: Context) -> Result<Action, kube::Error> {
///         println!("{}: {:?}", context.key, deployment.spec.as_ref().and_then(|spec| spec.replicas));
///         Ok(Action::After(Duration::from_mins(5)))
///     }
/// }
///
/// let controller = Controller::new("rollout", Rollout)
///     .selecting("app=tank")
///     // A change of a ReplicaSet reconciles the Deployment that owns it.
///     .owns::<ReplicaSet>()
///     // A change of a Node reconciles one Deployment.
///     .watches(|_: &Node| vec![Key::namespaced("default", "tank")])
///     .concurrency(4)
///     .time_limit(Duration::from_secs(30));
/// ```
pub struct Controller<R: Reconciler> {
    pub(super) name: String,
    pub(super) kind: Kind<R::Object>,
    pub(super) make: Make<R>,
    pub(super) field_manager: Option<String>,
    pub(super) events: bool,
    pub(super) selector: Selector,
    pub(super) settings: Settings,
    pub(super) time_limit: Duration,
    pub(super) resync: Option<Duration>,
    pub(super) paused: Pauses<R::Object>,
    pub(super) predicate: Predicate<R::Object>,
    pub(super) connections: Vec<Connect>,
    /// The kinds that it owns, in addition to those that its reconciler declares.
    pub(super) owned: Vec<DeclareOwned>,
    pub(super) triggers: Triggers,
    /// Streams that reconcile all objects.
    pub(super) ticks: Vec<BoxStream<'static, ()>>,
    pub(super) wall_clock: WallClock,
    pub(super) timed_out: TimedOut<R>,
    pub(super) pause_condition: Option<&'static str>,
    pub(super) report_pause: ReportPause<R>,
}

impl<R: Reconciler> Controller<R> {
    /// Creates a controller with this name, for logs and metrics.
    ///
    /// By default it reconciles four objects at a time, two minutes each, and all objects every ten hours.
    pub fn new(name: impl Into<String>, reconciler: R) -> Self
    where
        R::Object: StaticKind,
    {
        Self::of_kind(Kind::known(), name, reconciler)
    }

    /// As [`new`](Self::new), for objects of any kind: the reconciler's `Object` is `kube`'s `DynamicObject`.
    ///
    /// If the kind is deleted while the controller runs, so are its objects; the controller continues when the kind is back.
    pub fn of_kind(kind: Kind<R::Object>, name: impl Into<String>, reconciler: R) -> Self {
        Self::making(kind, name, Box::new(move |_, _| reconciler))
    }

    /// As [`new`](Self::new), with a reconciler that is created when the controller is added to a manager. It takes the kinds that
    /// it reads and owns from [`Kinds`], in one declaration each:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use trishanku_framework::apply::Owned;
    /// use trishanku_framework::{Action, Context, Controller, Error, Reconciler};
    ///
    /// struct Settings {
    ///     maps: Owned<ConfigMap>,
    /// }
    ///
    /// impl Reconciler for Settings {
    ///     type Object = Deployment;
    ///     type Error = Error;
    ///
    ///     async fn reconcile(&self, deployment: Arc<Deployment>, context: Context) -> Result<Action, Error> {
    ///         // It has the name of the Deployment.
    ///         context.apply_set(&*deployment).apply(ConfigMap::default(), &self.maps).await?;
    ///         Ok(Action::Change)
    ///     }
    /// }
    ///
    /// // A change of one of the ConfigMaps reconciles the Deployment that owns it.
    /// let controller = Controller::set_up("settings", |kinds| Settings { maps: kinds.owned() });
    /// ```
    pub fn set_up(name: impl Into<String>, make: impl FnOnce(&mut Kinds<'_>) -> R + Send + 'static) -> Self
    where
        R::Object: StaticKind,
    {
        Self::making(Kind::known(), name, Box::new(move |kinds, _| make(kinds)))
    }

    fn making(kind: Kind<R::Object>, name: impl Into<String>, make: Make<R>) -> Self {
        Self {
            name: name.into(),
            kind,
            make,
            field_manager: None,
            events: true,
            selector: Selector::default(),
            settings: Settings::default(),
            time_limit: Duration::from_mins(2),
            resync: Some(Duration::from_hours(10)),
            paused: Box::new(|_| false),
            predicate: Box::new(|_| true),
            connections: Vec::new(),
            owned: Vec::new(),
            triggers: Vec::new(),
            ticks: Vec::new(),
            wall_clock: WallClock::default(),
            timed_out: |_, _, _, _| Box::pin(std::future::ready(())),
            pause_condition: None,
            report_pause: |_, _, _| Box::pin(std::future::ready(Ok(()))),
        }
    }

    /// Selects objects with these labels, such as `app=tank,tier!=test`, or [by fields](Selector). Others are not even cached.
    #[must_use]
    pub fn selecting(mut self, selector: impl Into<Selector>) -> Self {
        self.selector = selector.into();
        self
    }

    /// Sets the field manager of its writes: of [`Context::apply_set`](super::Context::apply_set) and of the status. By default it is the controller's name. It
    /// must never change, or fields of the former name stay.
    #[must_use]
    pub fn field_manager(mut self, name: impl Into<String>) -> Self {
        self.field_manager = Some(name.into());
        self
    }

    /// Sets how many objects are reconciled at a time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Sets the delays after failures.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets the time limit of a reconcile. A reconcile that exceeds it is cancelled, and counts as failed.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets how often all objects are reconciled without a change. `None` or zero, as in client-go, disables this resync.
    #[must_use]
    pub fn resync(mut self, every: Option<Duration>) -> Self {
        self.resync = every.filter(|every| !every.is_zero());
        self
    }

    /// Ignores changes of its objects for which this is false, such as `|change| change.after.is_some_and(is_ours)`. It is asked
    /// about creations and changes that would trigger a reconcile. All objects are reconciled at the start of a term and on a
    /// [resync](Self::resync), whatever it says; to leave objects out altogether, [select](Self::selecting) the others.
    #[must_use]
    pub fn predicate(mut self, predicate: impl Fn(&Change<'_, R::Object>) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Box::new(predicate);
        self
    }

    /// Pauses objects for which this is true (`spec.suspend`), even if they are being deleted. The change that ends the pause
    /// triggers a reconcile. [`pause_condition`](Self::pause_condition) shows the pause in the status.
    #[must_use]
    pub fn paused_if(mut self, paused: impl Fn(&R::Object) -> bool + Send + Sync + 'static) -> Self {
        self.paused = Box::new(paused);
        self
    }

    /// Pauses objects that have this annotation with the value `true`, as [`paused_if`](Self::paused_if).
    #[must_use]
    pub fn paused_by(self, annotation: impl Into<String>) -> Self {
        let annotation = annotation.into();
        self.paused_if(move |object| {
            let annotations = object.meta().annotations.as_ref();
            annotations.and_then(|annotations| annotations.get(&annotation)).is_some_and(|value| value == "true")
        })
    }

    /// Also reconciles the controlling owner of an object of kind `C` that changes. Declares the kind for
    /// [`ApplySet::prune_all`](crate::apply::ApplySet::prune_all), too.
    #[must_use]
    pub fn owns<C: StaticKind>(self) -> Self {
        self.owns_kind::<C>(&Kind::known())
    }

    /// As [`owns`](Self::owns), for objects of any kind.
    #[must_use]
    pub fn owns_kind<C: Object>(mut self, kind: &Kind<C>) -> Self {
        self.owned.push(declare_kind(kind.clone()));
        let owner = Owner::of_kind(&self.kind);
        self.triggered_by(kind, owners(owner))
    }

    /// As [`owns`](Self::owns), for the objects in a cache: of a kind that many others use, only those with the labels of this
    /// controller are cached, such as [`PART_OF`](crate::apply::PART_OF).
    #[must_use]
    pub fn owns_cached<C: Object>(mut self, cache: &Arc<Cache<C>>) -> Self {
        self.owned.push(declare(cache.clone()));
        let owner = Owner::of_kind(&self.kind);
        self.triggered_from(cache.clone(), owners(owner))
    }

    /// As [`watches_changes`](Self::watches_changes), for the objects in a cache: with certain labels, or only their metadata.
    #[must_use]
    pub fn watches_cached<W: Object>(
        self,
        cache: &Arc<Cache<W>>,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.triggered_from(cache.clone(), affected)
    }

    /// Also reconciles the objects that `affected` returns for an object of kind `W` that changes.
    #[must_use]
    pub fn watches<W: StaticKind>(self, affected: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static) -> Self {
        self.watches_kind(&Kind::known(), affected)
    }

    /// As [`watches`](Self::watches), for objects of any kind.
    #[must_use]
    pub fn watches_kind<W: Object>(
        self,
        kind: &Kind<W>,
        affected: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.triggered_by(kind, move |change| {
            let objects = change.before.into_iter().chain(change.after);
            objects.flat_map(&affected).collect()
        })
    }

    /// As [`watches`](Self::watches), with the old and the new object, so that `affected` can ignore irrelevant changes.
    #[must_use]
    pub fn watches_changes<W: StaticKind>(
        self,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.triggered_by(&Kind::known(), affected)
    }

    /// Also reconciles the objects whose keys a stream yields: of a channel, of a timer, or of notifications of another system.
    ///
    /// Keys without an object are ignored. While the lease is not held, the stream is read and its keys are dropped: the next
    /// term reconciles all objects. It may end.
    #[must_use]
    pub fn reconcile_on(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Also reconciles all objects whenever a stream yields: of a timer, or after a change of what all of them depend on, such as a file.
    ///
    /// They are reconciled as by a [resync](Self::resync): after objects that have changed. While the lease is not held, the stream is
    /// read without effect: the next term reconciles all objects. It may end.
    #[must_use]
    pub fn reconcile_all_on(mut self, ticks: impl Stream<Item = ()> + Send + 'static) -> Self {
        self.ticks.push(ticks.boxed());
        self
    }

    /// Sets the time of day of [`Context::now`](super::Context::now) and [`Context::at`](super::Context::at): a clock of a test. By
    /// default [`Timestamp::now`]. The times of conditions and of leases do not follow it.
    ///
    /// If such a clock is set, nothing is reconciled by that alone: [`reconcile_on`](Self::reconcile_on) or
    /// [`reconcile_all_on`](Self::reconcile_all_on) does.
    #[must_use]
    pub fn wall_clock(mut self, now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        self.wall_clock = WallClock::new(now);
        self
    }

    fn triggered_by<W: Object>(
        mut self,
        kind: &Kind<W>,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.connections.push(follow_kind(kind.clone(), affected));
        self
    }

    fn triggered_from<W: Object>(
        mut self,
        cache: Arc<Cache<W>>,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.connections.push(follow(cache, affected));
        self
    }
}

impl<R: StatusReconciler> Controller<WithStatus<R>> {
    /// Creates a controller that writes the statuses of its objects; see [`StatusReconciler`]. The reconciler is created as by
    /// [`set_up`](Self::set_up).
    pub fn with_status(name: impl Into<String>, make: impl FnOnce(&mut Kinds<'_>) -> R + Send + 'static) -> Self
    where
        R::Object: StaticKind,
    {
        let make: Make<WithStatus<R>> = Box::new(move |kinds, seat| WithStatus::new(make(kinds), seat));
        let timed_out: TimedOut<WithStatus<R>> =
            |reconciler, object, client, limit| Box::pin(reconciler.timed_out(object, client, limit));
        let report_pause: ReportPause<WithStatus<R>> =
            |reconciler, object, client| Box::pin(reconciler.report_pause(object, client));
        Self { timed_out, report_pause, ..Self::making(Kind::known(), name, make) }
    }

    /// Shows in a condition of this type, such as `Paused`, whether an object is [paused](Self::paused_if): `True` while it is, and
    /// `False` once it is reconciled again. The other conditions stay as they were, and so does `observedGeneration`. By default, the
    /// status of a paused object is not written.
    ///
    /// # Panics
    /// If the type is `Ready`, `Reconciling` or `Stalled`.
    #[must_use]
    pub fn pause_condition(mut self, type_: &'static str) -> Self {
        assert_own(type_);
        self.pause_condition = Some(type_);
        self
    }

    /// Sends no events about transitions: each is a request that costs as much as the status, and delays the reconcile. For kinds
    /// with so many objects that users do not look at each.
    #[must_use]
    pub fn without_events(mut self) -> Self {
        self.events = false;
        self
    }
}

impl<R: Reconciler> std::fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

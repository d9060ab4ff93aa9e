//! What a developer writes, and what runs it.

mod came;
mod complaint;
mod driver;
mod trigger;

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Resource as _};

pub(crate) use self::driver::{Driver, Orders, Runs};
use crate::cache::{Caches, Change};
use crate::queue::{Backoff, Lane, Settings};
use crate::{Failure, Key, Kind, Known, Object};

/// When to look at an object again that is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When it, or what it is made of, changes.
    Change,
    /// Also after this time. `Duration::ZERO` is "again, but not hot": after the [back-off](Controller::backoff), whose delays grow as long as that is the answer, as
    /// for failures; it is none, and a change comes before it. controller-runtime has `Requeue: true` for that.
    After(Duration),
}

/// Whether everything is gone that an object had outside of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanedUp {
    /// It is: the finalizer is taken off.
    Yes,
    /// It is being removed: look again after this time, which may be zero as in [`Next::After`].
    NotYet(Duration),
}

/// What a reconcile is given besides the object.
#[derive(Clone)]
pub struct Context {
    /// Sends nothing without the lease, if there is one.
    pub client: Client,
    /// The object's key.
    pub key: Key,
    /// Why it is reconciled.
    pub lane: Lane,
    /// How often in a row it has failed.
    pub failures: u32,
}

/// Makes the world as an object of one kind says.
///
/// Write plain `async fn`s. A reconcile may be cancelled at every `.await` (when the lease is lost, when it takes too long) and may see an
/// older object than the apiserver has; so it must be repeatable, and what must not be lost belongs into the object.
///
/// For one object there is never more than one reconcile or clean-up at a time.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind.
    type Object: Object;
    /// How it fails.
    type Error: Failure;

    /// Looks at what is there, and changes what is not as it should be.
    ///
    /// # Errors
    /// Whatever went wrong; [`Failure::retry`] decides what happens then.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        context: Context,
    ) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// The finalizer, if deleted objects have to be [cleaned up](Self::clean_up) after. A name of your own: `example.org/tank`.
    ///
    /// It is put on an object before its first reconcile.
    fn finalizer(&self) -> Option<&str> {
        None
    }

    /// Removes what an object had outside of the cluster, before it goes. It is called until it says [`CleanedUp::Yes`], and may be called again
    /// after that.
    ///
    /// # Errors
    /// As [`reconcile`](Self::reconcile).
    fn clean_up(
        &self,
        object: Arc<Self::Object>,
        context: Context,
    ) -> impl Future<Output = Result<CleanedUp, Self::Error>> + Send {
        let (_, _) = (object, context);
        async { Ok(CleanedUp::Yes) }
    }
}

type Connect<R> = Box<dyn FnOnce(&Caches, &Arc<Driver<R>>) + Send>;
type Pauses<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

/// A [`Reconciler`] with what triggers it. Give it to a [`Manager`](crate::Manager).
pub struct Controller<R: Reconciler> {
    name: String,
    kind: Kind<R::Object>,
    reconciler: R,
    selector: Option<String>,
    settings: Settings,
    time_limit: Duration,
    resync: Option<Duration>,
    paused: Pauses<R::Object>,
    connections: Vec<Connect<R>>,
}

impl<R: Reconciler> Controller<R> {
    /// A controller with this name, for logs and metrics.
    ///
    /// Unless told otherwise, four objects at a time, two minutes for each, and everything again every ten hours.
    pub fn new(name: impl Into<String>, reconciler: R) -> Self
    where
        R::Object: Known,
    {
        Self::of_kind(Kind::known(), name, reconciler)
    }

    /// As [`new`](Self::new), for objects of any kind: the reconciler's `Object` is `kube`'s `DynamicObject`.
    ///
    /// If the kind goes while the controller runs, so do its objects; when it is back, it is worked with again.
    pub fn of_kind(kind: Kind<R::Object>, name: impl Into<String>, reconciler: R) -> Self {
        Self {
            name: name.into(),
            kind,
            reconciler,
            selector: None,
            settings: Settings::default(),
            time_limit: Duration::from_mins(2),
            resync: Some(Duration::from_hours(10)),
            paused: Box::new(|_| false),
            connections: Vec::new(),
        }
    }

    /// Only objects with these labels, such as `app=tank,tier!=test`. Others are not even in memory.
    #[must_use]
    pub fn selecting(mut self, labels: impl Into<String>) -> Self {
        self.selector = Some(labels.into());
        self
    }

    /// Most objects at a time.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// How long objects are left alone that fail.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// How long a reconcile may take; then it is cancelled, and counts as failed.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// How often everything is reconciled without a reason; `None` for never, and so is zero, as in client-go.
    #[must_use]
    pub fn resync(mut self, every: Option<Duration>) -> Self {
        self.resync = every.filter(|every| !every.is_zero());
        self
    }

    /// Leaves objects alone for which this is true (`spec.suspend`), also when they are deleted. When it is no longer true, that is a change.
    #[must_use]
    pub fn paused_if(mut self, paused: impl Fn(&R::Object) -> bool + Send + Sync + 'static) -> Self {
        self.paused = Box::new(paused);
        self
    }

    /// [`paused_if`](Self::paused_if) the object has this annotation with the value `true`.
    #[must_use]
    pub fn paused_by(self, annotation: impl Into<String>) -> Self {
        let annotation = annotation.into();
        self.paused_if(move |object| {
            let annotations = object.meta().annotations.as_ref();
            annotations.and_then(|annotations| annotations.get(&annotation)).is_some_and(|value| value == "true")
        })
    }

    /// Also when an object of kind `C` changes whose controlling owner it is.
    #[must_use]
    pub fn owns<C: Known>(self) -> Self {
        self.owns_kind::<C>(&Kind::known())
    }

    /// As [`owns`](Self::owns), with objects of any kind.
    #[must_use]
    pub fn owns_kind<C: Object>(self, kind: &Kind<C>) -> Self {
        let ours = self.kind.clone();
        self.triggered_by(kind, move |change| {
            // It may have changed hands.
            let objects = change.before.into_iter().chain(change.after);
            objects.filter_map(|object| trigger::owner(&ours, object)).collect()
        })
    }

    /// Also when an object of kind `W` changes, for the objects that `affected` names.
    #[must_use]
    pub fn watches<W: Known>(self, affected: impl Fn(&W) -> Vec<Key> + Send + Sync + 'static) -> Self {
        self.watches_kind(&Kind::known(), affected)
    }

    /// As [`watches`](Self::watches), with objects of any kind.
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

    /// As [`watches`](Self::watches), with what changed: for objects that change in ways which nobody has to look at.
    #[must_use]
    pub fn watches_changes<W: Known>(
        self,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.triggered_by(&Kind::known(), affected)
    }

    fn triggered_by<W: Object>(
        mut self,
        kind: &Kind<W>,
        affected: impl Fn(&Change<'_, W>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let kind = kind.clone();
        self.connections.push(Box::new(move |caches, driver| {
            let driver = Arc::downgrade(driver);
            // What was there to begin with is there for the first reconcile too.
            caches.of_kind(&kind, None).follow_later(move |change| {
                if let Some(driver) = driver.upgrade() {
                    driver.affected(affected(change));
                }
            });
        }));
        self
    }
}

impl<R: Reconciler> std::fmt::Debug for Controller<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").field("name", &self.name).finish_non_exhaustive()
    }
}

//! The logic of a controller.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::runtime::events::Event;

use super::Term;
use crate::apply::{ApplySet, OwnedKind};
use crate::clock::WallClock;
use crate::error::chain;
use crate::queue::Lane;
use crate::status::Recorder;
use crate::{Failure, Key, Kind, Object, StaticKind};

/// When to reconcile an object again after a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// When the object, or something that it depends on, changes.
    Change,
    /// Also after this time. `Duration::ZERO` requeues the object after the [back-off](crate::Controller::backoff), whose delay
    /// grows as long as the reconciler keeps returning it. It is not a failure, and a change takes precedence.
    /// controller-runtime has `Requeue: true` for that.
    After(Duration),
}

/// Whether everything that an object had outside of the cluster is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanedUp {
    /// It is: the finalizer is removed.
    Yes,
    /// Not yet: call again after this time; zero as in [`Action::After`].
    NotYet(Duration),
}

/// What a reconcile gets besides the object.
#[derive(Clone)]
pub struct Context {
    /// A client whose requests fail without the lease, if there is one.
    pub client: Client,
    /// The object's key.
    pub key: Key,
    /// Why it is reconciled.
    pub lane: Lane,
    /// Number of consecutive failures.
    pub failures: u32,
    /// How long the controller may act: tasks that a reconcile starts end with it.
    pub term: Term,
    /// The field manager of the controller's writes: [`Controller::field_manager`](crate::Controller::field_manager).
    pub field_manager: Arc<str>,
    pub(super) recorder: Recorder,
    pub(super) wall_clock: WallClock,
    pub(super) owned: Arc<[Arc<dyn OwnedKind>]>,
}

impl Context {
    /// Returns the time of day, for what goes by a calendar: by the [clock of the controller](crate::Controller::wall_clock), which
    /// a test can set. It may jump, so measure durations by [`std::time::Instant`].
    pub fn now(&self) -> Timestamp {
        self.wall_clock.now()
    }

    /// Returns the action to reconcile again at this time of day, or earlier if something changes; as soon as possible
    /// (`Action::After(Duration::ZERO)`) if it has passed.
    ///
    /// The timer stands still while the machine is suspended, and does not notice a clock that is set: a reconcile may be late. So
    /// compare the time again, and do not rely on being called at that moment.
    pub fn at(&self, time: Timestamp) -> Action {
        Action::After(Duration::try_from(time.duration_since(self.now())).unwrap_or_default())
    }

    /// Publishes an event about an object. If that fails, it is only logged.
    ///
    /// An event that equals one of the last six minutes becomes part of a series: one object in the cluster, with a count.
    /// Transitions of the status need no event: a [`StatusReconciler`](crate::StatusReconciler) has them already.
    pub async fn publish<K: StaticKind>(&self, object: &K, event: &Event) {
        if let Err(error) = self.recorder.publish(&self.client, event, &object.object_ref(&())).await {
            tracing::warn!(object = %Key::of(object), error = chain(&error), "cannot send an event");
        }
    }

    /// Creates the set of objects that `owner` owns, with the client, the field manager and the [kinds](crate::Kinds::owned) of the
    /// controller.
    pub fn apply_set<'a, O: StaticKind>(&self, owner: &'a O) -> ApplySet<'a, O> {
        self.apply_set_of(&Kind::known(), owner)
    }

    /// As [`apply_set`](Self::apply_set), with an owner of any kind.
    pub fn apply_set_of<'a, O: Object>(&self, kind: &Kind<O>, owner: &'a O) -> ApplySet<'a, O> {
        let (client, manager) = (self.client.clone(), self.field_manager.to_string());
        ApplySet::declaring(kind, owner, client, manager, self.owned.clone())
    }
}

/// The logic of a controller: makes the actual state match the spec of an object.
///
/// Write plain `async fn`s. A reconcile may be cancelled at every `.await` (when the lease is lost, when it takes too long)
/// and may see an outdated object. So it must be idempotent, and state that must survive belongs in the object.
///
/// An object never has more than one reconcile or cleanup at a time.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind of the objects.
    type Object: Object;
    /// The error of a reconcile.
    type Error: Failure;

    /// Compares the actual state with the spec, and corrects what differs.
    ///
    /// Not called for an object that is being deleted: with a [finalizer](Self::finalizer), [`clean_up`](Self::clean_up) is
    /// called instead, and without one, or once that is removed, nothing. Background work for an object must
    /// stop when the [cache](crate::cache) no longer contains it.
    ///
    /// # Errors
    /// Any failure; [`Failure::retry`] decides when the object is retried.
    fn reconcile(
        &self,
        object: Arc<Self::Object>,
        context: Context,
    ) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Returns the finalizer, if deleted objects need a [cleanup](Self::clean_up): a name of your own, such as
    /// `example.org/tank`.
    ///
    /// It is added to an object before the first reconcile.
    fn finalizer(&self) -> Option<&str> {
        None
    }

    /// Removes what an object had outside of the cluster, before the object is deleted. It is called until it returns
    /// [`CleanedUp::Yes`], and may be called again after that.
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

//! Runs one controller: passes objects from the queue to the reconciler.

#[cfg(test)]
mod tests;
mod work;

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{BoxStream, StreamExt, select_all};
use kube::Client;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};

use super::builder::{Pauses, Predicate, ReportPause, Seat, TimedOut, Triggers};
use super::complaint::complain;
use super::kinds::{Affected, Connect, Kinds};
use super::outcome::AT_ONCE;
use super::run_context::{RunContext, Runs};
use super::term::Acting;
use super::trigger::{self, Owner};
use super::{Controller, Reconciler};
use crate::Key;
use crate::apply::OwnedKind;
use crate::cache::{Cache, Caches};
use crate::clock::WallClock;
use crate::lease::Role;
use crate::metrics::{ControllerMetrics, Ending, Metrics};
use crate::queue::{Cause, Outcome, Queue, Settings, later};
use crate::status::Recorder;
use crate::trace::Trail;

/// A controller and its queue.
pub(crate) struct Driver<R: Reconciler> {
    name: String,
    reconciler: R,
    field_manager: Arc<str>,
    recorder: Recorder,
    cache: Arc<Cache<R::Object>>,
    paused: Pauses<R::Object>,
    settings: Settings,
    time_limit: Duration,
    resync: Option<Duration>,
    queue: Mutex<Queue<Key>>,
    added: Notify,
    metrics: ControllerMetrics,
    trail: Trail,
    timed_out: TimedOut<R>,
    report_pause: ReportPause<R>,
    wall_clock: WallClock,
    /// The kinds that its objects own.
    owned: Arc<[Arc<dyn OwnedKind>]>,
    /// Until it runs.
    triggers: Mutex<Triggers>,
    /// Until it runs.
    ticks: Mutex<Vec<BoxStream<'static, ()>>>,
    /// Complete when the caches that trigger the controller are synced. Empty once it runs.
    awaited: Mutex<Vec<BoxFuture<'static, ()>>>,
}

/// How many keys of streams are added to the queue together, at most.
const READY_AT_ONCE: usize = 256;

type Running = JoinSet<Done>;
/// Keys of the running reconciles.
type Works = HashMap<Id, Key>;

type Done = (Outcome, Ending);

const DONE: Done = (Outcome::Done, Ending::Success);

impl<R: Reconciler> Driver<R> {
    pub(crate) fn new(controller: Controller<R>, caches: &Caches, metrics: &Metrics) -> Arc<Self> {
        let Controller {
            name,
            kind,
            make,
            field_manager,
            events,
            selector,
            settings,
            time_limit,
            resync,
            paused,
            predicate,
            connections,
            owned,
            triggers,
            ticks,
            wall_clock,
            timed_out,
            pause_condition,
            report_pause,
        } = controller;
        let cache = caches.selected(&kind, &selector);
        let field_manager: Arc<str> = field_manager.as_ref().unwrap_or(&name).as_str().into();
        let recorder = Recorder::new(&field_manager, None);
        let mut kinds = Kinds::new(caches, Owner::of_kind(&kind));
        let seat = Seat {
            cache: cache.clone(),
            field_manager: field_manager.clone(),
            recorder: recorder.clone(),
            events,
            pause_condition,
        };
        let reconciler = make(&mut kinds, &seat);
        let (connected, owned) = kinds.into_parts(owned);
        let mut queue = Queue::new(settings);
        // It accepts keys only during a term.
        queue.drain();
        let (queue, added) = (Mutex::new(queue), Notify::new());
        let (metrics, trail) = (metrics.of(&name, settings.concurrency.max(1)), Trail::default());
        let driver = Arc::new(Self {
            name,
            reconciler,
            field_manager,
            recorder,
            cache,
            paused,
            settings,
            time_limit,
            resync,
            queue,
            added,
            metrics,
            trail,
            timed_out,
            report_pause,
            wall_clock,
            owned: owned.into(),
            triggers: Mutex::new(triggers),
            ticks: Mutex::new(ticks),
            awaited: Mutex::default(),
        });
        driver.follow(caches, predicate, connected.into_iter().chain(connections));
        driver
    }

    /// Follows the cache of its objects, and those that trigger it.
    fn follow(
        self: &Arc<Self>,
        caches: &Caches,
        predicate: Predicate<R::Object>,
        connections: impl Iterator<Item = Connect>,
    ) {
        let weak = Arc::downgrade(self);
        // The initial list triggers nothing: each term starts with all objects.
        self.cache.follow_later(move |change| {
            if let (Some(driver), Some(cause)) = (weak.upgrade(), trigger::cause(change))
                && predicate(change)
            {
                driver.add([Key::of(change.object())], cause);
            }
        });
        let affected: Arc<dyn Affected> = self.clone();
        *lock(&self.awaited) = connections.map(|connect| connect(caches, &affected)).collect();
    }

    fn add(&self, keys: impl IntoIterator<Item = Key>, cause: Cause) {
        let now = Instant::now();
        self.queue(|queue| keys.into_iter().for_each(|key| queue.add(&key, cause, now)));
        self.added.notify_one();
    }

    /// Passes on the keys of streams, and all keys whenever a stream of ticks yields. What is ready together is passed on together.
    async fn listen(&self) -> Infallible {
        let mut keys = select_all(std::mem::take(&mut *lock(&self.triggers))).ready_chunks(READY_AT_ONCE);
        let mut ticks = select_all(std::mem::take(&mut *lock(&self.ticks))).ready_chunks(READY_AT_ONCE);
        loop {
            tokio::select! {
                Some(keys) = keys.next() => self.affected(keys),
                Some(_) = ticks.next() => self.add(self.cache.keys(), Cause::Resync),
                else => std::future::pending().await,
            }
            // The reconciles are started by the same task, which a stream that is always ready would occupy.
            tokio::task::yield_now().await;
        }
    }

    /// Works for every term, until it is stopped.
    async fn terms(self: &Arc<Self>, run_context: &mut RunContext) {
        while let Some(role) = run_context.lead().await {
            if self.term(run_context, role).await {
                return;
            }
        }
    }

    fn queue<T>(&self, act: impl FnOnce(&mut Queue<Key>) -> T) -> T {
        self.metrics.queue.with(&mut lock(&self.queue), act)
    }

    /// Starts a term with all objects.
    fn begin(&self) {
        self.queue(|queue| *queue = Queue::new(self.settings));
        self.trail.clear();
        self.add(self.cache.keys(), Cause::Resync);
    }

    /// Works for the term of `role`. Returns true if it ended because of `stop`.
    async fn term(self: &Arc<Self>, run_context: &mut RunContext, role: Role) -> bool {
        self.begin();
        let acting = Acting::begin();
        let (mut running, mut works) = (Running::new(), Works::new());
        let mut resync = Instant::now();
        let mut complaints = pin!(complain(&self.recorder, &self.cache, run_context.client.clone()));
        let stopped = loop {
            if self.resync.is_some_and(|every| resync.elapsed() >= every) {
                // Several missed resyncs count as one.
                resync = Instant::now();
                self.add(self.cache.keys(), Cause::Resync);
            }
            self.start(&run_context.client, &acting, &mut running, &mut works);
            // Never longer than the interval of liveness reports.
            let mut wake = Instant::now() + run_context.pulse.beat();
            wake = self.queue(|queue| queue.wake_at()).map_or(wake, |at| at.min(wake));
            if let Some(every) = self.resync {
                wake = wake.min(later(resync, every));
            }
            tokio::select! {
                biased;
                Ok(_) = run_context.stop.wait_for(|stop| *stop) => break true,
                // Also if the next term has already started: another replica may have worked in between.
                Ok(_) = run_context.role.wait_for(|now| *now != role) => break false,
                Some(ended) = running.join_next_with_id() => self.ended(ended, &mut works),
                () = self.added.notified() => {}
                never = &mut complaints => match never {},
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        };
        self.queue(Queue::drain);
        if stopped {
            self.wait_for(&mut running, &mut works, run_context, role).await;
        }
        // Before a reconcile that is slow to end: another replica may work already.
        drop(acting);
        // Cancels the remaining reconciles; after a lost lease, these are all of them.
        running.abort_all();
        while let Some(ended) = running.join_next_with_id().await {
            self.ended(ended, &mut works);
        }
        stopped
    }

    fn start(self: &Arc<Self>, client: &Client, acting: &Acting, running: &mut Running, works: &mut Works) {
        let now = Instant::now();
        loop {
            let Some(job) = self.queue(|queue| queue.next(now)) else { return };
            self.metrics.queue.handed_out(job.waited);
            let (key, driver, client, term) = (job.key.clone(), self.clone(), client.clone(), acting.term());
            let task = running.spawn(async move { driver.work(job, client, term).await });
            self.metrics.began(task.id());
            works.insert(task.id(), key);
        }
    }

    fn ended(&self, ended: Result<(Id, Done), JoinError>, works: &mut Works) {
        let (id, (outcome, ending)) = ended.unwrap_or_else(|error| {
            let ending = if error.is_panic() { Ending::Panicked } else { Ending::Cancelled };
            (error.id(), (Outcome::Failed { not_before: AT_ONCE }, ending))
        });
        self.metrics.ended(id, ending);
        if let Some(key) = works.remove(&id) {
            self.queue(|queue| queue.finish(&key, outcome, Instant::now()));
        }
    }

    /// Lets running reconciles finish, as long as the lease is held.
    async fn wait_for(&self, running: &mut Running, works: &mut Works, run_context: &mut RunContext, role: Role) {
        let all = async {
            while let Some(ended) = running.join_next_with_id().await {
                self.ended(ended, works);
            }
        };
        tokio::select! {
            () = all => {}
            Ok(_) = run_context.role.wait_for(|now| *now != role) => {}
            // A long reconcile does not mean that the controller is stuck.
            () = run_context.pulse.clone().keep() => {}
            () = tokio::time::sleep(run_context.grace) => {
                tracing::warn!(controller = self.name, "cancelled reconciles that did not finish in time");
            }
        }
    }
}

impl<R: Reconciler> Affected for Driver<R> {
    fn affected(&self, keys: Vec<Key>) {
        self.add(keys, Cause::Changed);
    }
}

impl<R: Reconciler> Runs for Driver<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn synced(&self) -> BoxFuture<'static, ()> {
        let awaited = std::mem::take(&mut *lock(&self.awaited));
        Box::pin(futures::future::join_all(awaited).map(drop))
    }

    fn run(self: Arc<Self>, mut run_context: RunContext) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::select! {
                never = self.listen() => match never {},
                () = self.terms(&mut run_context) => {}
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

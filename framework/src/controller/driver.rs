//! Runs one controller: hands objects from the queue to the reconciler.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tracing::Instrument;

use super::{CleanedUp, Context, Controller, Next, Pauses, Reconciler, trigger};
use crate::cache::{Cache, Caches};
use crate::error::chain;
use crate::finalizer::{self, Stage};
use crate::health::Pulse;
use crate::lease::Role;
use crate::metrics::{Ending, Figures, Metrics};
use crate::object::Reach;
use crate::queue::{Cause, Job, Outcome, Queue, Settings};
use crate::{Failure, Key, Retry};

/// A controller whose kind does not matter any more.
pub(crate) trait Runs: Send + Sync {
    fn name(&self) -> &str;
    /// Works while `role` leads, until `stop` is true; then ends what is under way, within `grace`.
    fn run(self: Arc<Self>, orders: Orders) -> BoxFuture<'static, ()>;
}

/// What the manager tells a controller.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) client: Client,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) grace: Duration,
    pub(crate) pulse: Pulse,
}

/// A controller and its queue.
pub(crate) struct Driver<R: Reconciler> {
    name: String,
    reconciler: R,
    cache: Arc<Cache<R::Object>>,
    paused: Pauses<R::Object>,
    settings: Settings,
    time_limit: Duration,
    resync: Option<Duration>,
    queue: Mutex<Queue<Key>>,
    added: Notify,
    figures: Figures,
}

type Running = JoinSet<Outcome>;

/// A reconcile that is under way.
struct Work {
    key: Key,
    began: Instant,
}

impl<R: Reconciler> Driver<R> {
    pub(crate) fn new(controller: Controller<R>, caches: &Caches, metrics: &Metrics) -> Arc<Self> {
        let Controller { name, reconciler, selector, settings, time_limit, resync, paused, connections } = controller;
        let cache = caches.of(selector.as_deref());
        let mut queue = Queue::new(settings);
        // It takes what is added when it is its turn.
        queue.drain();
        let (queue, added) = (Mutex::new(queue), Notify::new());
        let figures = metrics.of(&name, settings.concurrency.max(1));
        let driver =
            Arc::new(Self { name, reconciler, cache, paused, settings, time_limit, resync, queue, added, figures });
        let weak = Arc::downgrade(&driver);
        driver.cache.follow(move |change| {
            if let (Some(driver), Some(cause)) = (weak.upgrade(), trigger::cause(change)) {
                driver.add([Key::of(change.object())], cause);
            }
        });
        for connect in connections {
            connect(caches, &driver);
        }
        driver
    }

    pub(crate) fn affected(&self, keys: Vec<Key>) {
        self.add(keys, Cause::Changed);
    }

    fn add(&self, keys: impl IntoIterator<Item = Key>, cause: Cause) {
        let now = Instant::now();
        let mut queue = self.queue();
        keys.into_iter().for_each(|key| queue.add(&key, cause, now));
        drop(queue);
        self.added.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Key>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a term with everything that is there.
    fn begin(&self) {
        *self.queue() = Queue::new(self.settings);
        self.add(self.cache.keys(), Cause::Resync);
    }

    /// Works for one term. True if it ended because of `stop`.
    async fn term(self: &Arc<Self>, orders: &mut Orders) -> bool {
        self.begin();
        let (mut running, mut works) = (Running::new(), HashMap::new());
        let mut resync = Instant::now();
        let stopped = loop {
            if let Some(every) = self.resync.filter(|every| resync.elapsed() >= *every) {
                resync += every;
                self.add(self.cache.keys(), Cause::Resync);
            }
            self.start(&orders.client, &mut running, &mut works);
            // Never longer than the pulse may stand still.
            let mut wake = Instant::now() + orders.pulse.beat();
            wake = self.queue().wake_at().map_or(wake, |at| at.min(wake));
            if let Some(every) = self.resync {
                wake = wake.min(resync + every);
            }
            tokio::select! {
                biased;
                Ok(_) = orders.stop.wait_for(|stop| *stop) => break true,
                Ok(_) = orders.role.wait_for(|role| *role == Role::Standby) => break false,
                Some(ended) = running.join_next_with_id() => self.ended(ended, &mut works),
                () = self.added.notified() => {}
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        };
        self.queue().drain();
        if stopped {
            self.wait_for(&mut running, &mut works, orders).await;
        }
        // Whoever is left is cancelled; also all of those of a lost lease.
        running.abort_all();
        while let Some(ended) = running.join_next_with_id().await {
            self.ended(ended, &mut works);
        }
        stopped
    }

    fn start(self: &Arc<Self>, client: &Client, running: &mut Running, works: &mut HashMap<Id, Work>) {
        let now = Instant::now();
        loop {
            let Some(job) = self.queue().next(now) else { return };
            let (key, driver, client) = (job.key.clone(), self.clone(), client.clone());
            let task = running.spawn(async move { driver.work(job, client).await });
            self.figures.began();
            works.insert(task.id(), Work { key, began: now });
        }
    }

    fn ended(&self, ended: Result<(Id, Outcome), JoinError>, works: &mut HashMap<Id, Work>) {
        let (id, outcome, ending) = match ended {
            Ok((id, outcome)) => (id, outcome, ending(outcome)),
            Err(error) => {
                let ending = if error.is_panic() { Ending::Panicked } else { Ending::Cancelled };
                (error.id(), Outcome::Failed { not_before: Duration::ZERO }, ending)
            }
        };
        if let Some(Work { key, began }) = works.remove(&id) {
            self.figures.ended(ending, began.elapsed());
            self.queue().finish(&key, outcome, Instant::now());
        }
    }

    /// Lets those that are under way end, as long as the lease is held.
    async fn wait_for(&self, running: &mut Running, works: &mut HashMap<Id, Work>, orders: &mut Orders) {
        let all = async {
            while let Some(ended) = running.join_next_with_id().await {
                self.ended(ended, works);
            }
        };
        tokio::select! {
            () = all => {}
            Ok(_) = orders.role.wait_for(|role| *role == Role::Standby) => {}
            () = tokio::time::sleep(orders.grace) => {
                tracing::warn!(controller = self.name, "some reconciles did not end in time and are cancelled");
            }
        }
    }

    async fn work(&self, job: Job<Key>, client: Client) -> Outcome {
        let Some(object) = self.cache.get(&job.key) else { return Outcome::Done };
        if (self.paused)(&object) {
            return Outcome::Done;
        }
        let span = tracing::info_span!(
            parent: None,
            "reconcile",
            controller = self.name,
            object = %job.key,
            generation = kube::Resource::meta(&*object).generation,
            trigger = ?job.lane,
            failures = job.failures,
        );
        let Job { key, lane, failures } = job;
        let context = Context { client, key, lane, failures };
        async {
            let in_time = tokio::time::timeout(self.time_limit, self.step(object, context)).await;
            in_time.unwrap_or_else(|_| {
                tracing::warn!(limit = ?self.time_limit, reason = "TimedOut", "the reconcile took too long");
                Outcome::Failed { not_before: Duration::ZERO }
            })
        }
        .instrument(span)
        .await
    }

    /// One reconcile, or a step of the life before and after.
    async fn step(&self, object: Arc<R::Object>, context: Context) -> Outcome {
        let (client, namespace) = (context.client.clone(), context.key.namespace().map(ToOwned::to_owned));
        let api = || <R::Object as kube::Resource>::Scope::api(client.clone(), namespace.as_deref());
        let ours = self.reconciler.finalizer();
        match (finalizer::stage(&*object, ours), ours) {
            (Stage::LetGo, _) => Outcome::Done,
            // Its change triggers the reconcile.
            (Stage::Unprotected, Some(ours)) => match finalizer::put_on(&api(), &object, ours).await {
                Ok(()) => Outcome::Done,
                Err(error) => failed(&error),
            },
            (Stage::Ending, Some(ours)) => match self.reconciler.clean_up(object.clone(), context).await {
                Ok(CleanedUp::NotYet(again)) => Outcome::Again(again),
                Ok(CleanedUp::Yes) => match finalizer::take_off(&api(), &object, ours).await {
                    Ok(()) => Outcome::Done,
                    Err(error) => failed(&error),
                },
                Err(error) => failed(&error),
            },
            (Stage::Alive | Stage::Unprotected | Stage::Ending, _) => {
                match self.reconciler.reconcile(object, context).await {
                    Ok(Next::Change) => Outcome::Done,
                    Ok(Next::After(time)) => Outcome::Again(time),
                    Err(error) => failed(&error),
                }
            }
        }
    }
}

fn ending(outcome: Outcome) -> Ending {
    match outcome {
        Outcome::Done => Ending::Success,
        Outcome::Again(_) => Ending::Again,
        Outcome::Failed { .. } => Ending::Failed,
        Outcome::Hopeless => Ending::Terminal,
    }
}

fn failed(error: &impl Failure) -> Outcome {
    let reason = error.reason();
    match error.retry() {
        Retry::Waiting { on, look_again } => {
            tracing::info!(reason, on, "waiting");
            return Outcome::Again(look_again);
        }
        Retry::AfterChange => {
            tracing::warn!(reason, error = chain(error), "failed until something changes");
            return Outcome::Hopeless;
        }
        Retry::BackOff | Retry::NotBefore(_) => tracing::warn!(reason, error = chain(error), "failed"),
    }
    match error.retry() {
        Retry::NotBefore(not_before) => Outcome::Failed { not_before },
        _ => Outcome::Failed { not_before: Duration::ZERO },
    }
}

impl<R: Reconciler> Runs for Driver<R> {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(self: Arc<Self>, mut orders: Orders) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = orders.stop.wait_for(|stop| *stop) => return,
                    () = orders.pulse.clone().keep() => return,
                    leads = orders.role.wait_for(|role| *role != Role::Standby) => if leads.is_err() { return },
                }
                if self.term(&mut orders).await {
                    return;
                }
            }
        })
    }
}

//! One reconcile of one object.

use std::sync::Arc;

use kube::{Client, Resource as _};

use super::{DONE, Done, Driver};
use crate::controller::outcome::{AT_ONCE, ReconcileOutcome, again, done, failed};
use crate::controller::term::Term;
use crate::controller::{Action, CleanedUp, Context, Reconciler};
use crate::error::chain;
use crate::finalizer::{self, Stage};
use crate::metrics::Ending;
use crate::queue::{Job, Outcome};
use crate::trace::{Subject, TraceContext};
use crate::{Failure as _, Key, Retry};

impl<R: Reconciler> Driver<R> {
    pub(super) async fn work(&self, job: Job<Key>, client: Client, term: Term) -> Done {
        let Job { key, lane, failures, .. } = job;
        let Some(object) = self.cache.get(&key) else {
            self.trail.forget(&key);
            return DONE;
        };
        if (self.paused)(&object) {
            self.trail.forget(&key);
            return self.pause(&key, object, client).await;
        }
        let subject = Subject {
            controller: &self.name,
            kind: &self.cache.kind().name(),
            key: &key,
            generation: object.meta().generation,
            lane,
            failures,
        };
        let reconcile = self.trail.begin(&subject, || TraceContext::on(&*object));
        let (field_manager, recorder) = (self.field_manager.clone(), self.recorder.clone());
        let (wall_clock, owned) = (self.wall_clock.clone(), self.owned.clone());
        let context =
            Context { client: client.clone(), key, lane, failures, term, field_manager, recorder, wall_clock, owned };
        let work = async {
            if let Ok(outcome) = tokio::time::timeout(self.time_limit, self.step(object.clone(), context)).await {
                return outcome;
            }
            let reason = "TimedOut";
            tracing::warn!(limit = ?self.time_limit, reason, "the reconcile took too long");
            (self.timed_out)(&self.reconciler, object, client, self.time_limit).await;
            (Outcome::Failed { not_before: AT_ONCE }, Ending::TimedOut, Some(reason))
        };
        reconcile.run(work).await
    }

    /// Reports that an object is paused, if the controller does.
    async fn pause(&self, key: &Key, object: Arc<R::Object>, client: Client) -> Done {
        let report = (self.report_pause)(&self.reconciler, object, client);
        let (text, done) = match tokio::time::timeout(self.time_limit, report).await {
            Ok(Ok(())) => return DONE,
            Ok(Err(error)) => {
                let done = match error.retry() {
                    Retry::Terminal => (Outcome::Terminal, Ending::Terminal),
                    Retry::NotBefore(not_before) => (Outcome::Failed { not_before }, Ending::Failed),
                    Retry::Waiting { look_again, .. } => (Outcome::Again(look_again), Ending::Again),
                    Retry::BackOff => (Outcome::Failed { not_before: AT_ONCE }, Ending::Failed),
                };
                (chain(&error), done)
            }
            Err(limit) => (limit.to_string(), (Outcome::Failed { not_before: AT_ONCE }, Ending::TimedOut)),
        };
        tracing::warn!(controller = self.name, object = %key, error = text, "cannot report that the object is paused");
        done
    }

    /// Reconciles the object, or adds or removes its finalizer.
    async fn step(&self, object: Arc<R::Object>, context: Context) -> ReconcileOutcome {
        let (client, namespace) = (context.client.clone(), context.key.namespace().map(ToOwned::to_owned));
        let api = || self.cache.kind().api(client.clone(), namespace.as_deref());
        let ours = self.reconciler.finalizer();
        match (finalizer::stage(&*object, ours), ours) {
            (Stage::LetGo, _) => done(),
            // The patch triggers the reconcile.
            (Stage::Unprotected, Some(ours)) => match finalizer::put_on(&api(), &object, ours).await {
                Ok(()) => done(),
                Err(error) => failed(&error),
            },
            (Stage::Ending, Some(ours)) => match self.reconciler.clean_up(object.clone(), context).await {
                Ok(CleanedUp::NotYet(time)) => again(time, None),
                Ok(CleanedUp::Yes) => match finalizer::take_off(&api(), &object, ours).await {
                    Ok(()) => done(),
                    Err(error) => failed(&error),
                },
                Err(error) => failed(&error),
            },
            (Stage::Alive | Stage::Unprotected | Stage::Ending, _) => {
                match self.reconciler.reconcile(object, context).await {
                    Ok(Action::Change) => done(),
                    Ok(Action::After(time)) => again(time, None),
                    Err(error) => failed(&error),
                }
            }
        }
    }
}

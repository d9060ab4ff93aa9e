//! What runs beside controllers, for as long as the lease is held.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Client;

use super::run_context::{RunContext, Runs};
use super::term::{Acting, Term};

type Begin = Box<dyn Fn(Client, Term) -> BoxFuture<'static, ()> + Send + Sync>;

/// A function that is called at the start of each term.
pub(crate) struct Runnable {
    name: String,
    begin: Begin,
}

impl Runnable {
    pub(crate) fn new<F>(name: String, begin: impl Fn(Client, Term) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, begin: Box::new(move |client, term| Box::pin(begin(client, term))) }
    }
}

impl Runs for Runnable {
    fn name(&self) -> &str {
        &self.name
    }

    fn synced(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn run(self: Arc<Self>, mut run_context: RunContext) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            while let Some(role) = run_context.lead().await {
                let acting = Acting::begin();
                let mut work = (self.begin)(run_context.client.clone(), acting.term());
                let mut is_done = false;
                let stopped = loop {
                    tokio::select! {
                        biased;
                        Ok(_) = run_context.stop.wait_for(|stop| *stop) => break true,
                        Ok(_) = run_context.role.wait_for(|now| *now != role) => break false,
                        () = &mut work, if !is_done => is_done = true,
                        () = run_context.pulse.clone().keep() => {}
                    }
                };
                drop(acting);
                if !stopped {
                    continue;
                }
                if !is_done && tokio::time::timeout(run_context.grace, work).await.is_err() {
                    tracing::warn!(runnable = self.name, "cancelled a runnable that did not finish in time");
                }
                return;
            }
        })
    }
}

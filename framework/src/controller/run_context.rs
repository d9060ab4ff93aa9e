//! The interface through which a manager runs its controllers.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::Client;
use tokio::sync::watch;

use crate::health::Heartbeat;
use crate::lease::Role;

/// A controller of any kind.
pub(crate) trait Runs: Send + Sync {
    fn name(&self) -> &str;
    /// Completes when the caches that trigger it are complete, also those of other clusters. To be called once.
    fn synced(&self) -> BoxFuture<'static, ()>;
    /// Works while `role` leads, until `stop` is true; then lets running reconciles finish within `grace`.
    fn run(self: Arc<Self>, run_context: RunContext) -> BoxFuture<'static, ()>;
}

/// What a controller needs from the manager.
#[derive(Clone)]
pub(crate) struct RunContext {
    pub(crate) client: Client,
    pub(crate) role: watch::Receiver<Role>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) grace: Duration,
    pub(crate) pulse: Heartbeat,
}

impl RunContext {
    /// Waits for `condition`; returns false if the manager stops before.
    pub(crate) async fn until(&mut self, condition: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => false,
            () = self.pulse.clone().keep() => false,
            () = condition => true,
        }
    }

    /// Waits for the lead; `None` if the manager stops.
    pub(super) async fn lead(&mut self) -> Option<Role> {
        tokio::select! {
            biased;
            _ = self.stop.wait_for(|stop| *stop) => None,
            () = self.pulse.clone().keep() => None,
            leads = self.role.wait_for(|role| *role != Role::Standby) => leads.ok().map(|role| *role),
        }
    }
}

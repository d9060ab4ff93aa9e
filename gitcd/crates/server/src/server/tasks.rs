//! The tasks of a branch that is served: listeners, and what the supervisor restarts.

use std::path::Path;
use std::sync::Arc;

use gitcd_core::fence::Fence;
use gitcd_core::supervisor::Supervisor;
use gitcd_engine::audit::Audit;
use gitcd_engine::compactor::{self, Retention};
use gitcd_engine::maintenance::Maintenance;
use gitcd_mvcc::Store;
use gitcd_net::listener::{Bound, SharedSocket};
use gitcd_net::transport::Transport;
use gitcd_sync::Puller;
use gitcd_sync::lease::Lease;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::ServeError;
use super::frontend::{Frontend, serve, serve_routes, show};
use crate::audit;
use crate::gateway::Origins;

/// Starts the listeners for clients, and those for pages.
pub(super) fn listen(
    (clients, pages): (Vec<Bound>, Vec<Bound>),
    face: &Frontend,
    (transport, fence, store): (Transport, Option<Arc<Fence>>, &Arc<Store>),
    supervisor: &Supervisor,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let network = || face.source.network.clone();
    let pages: Result<Vec<_>, _> = pages.into_iter().map(SharedSocket::new).collect();
    let pages = pages.map_err(ServeError::Socket)?.into_iter();
    let clients = clients.into_iter().map(|bound| {
        let with = (transport, fence.clone());
        tokio::spawn(serve((bound, network()), with, face.front.clone(), store.clone(), stopped.clone()))
    });
    let pages = pages.map(|socket| {
        let shown = show(supervisor, (socket, network(), transport.connections), face.pages(), stopped.clone());
        tokio::spawn(shown)
    });
    Ok(clients.chain(pages).collect())
}

/// Starts the listeners for audit events.
pub(super) fn receive(
    receivers: Vec<Bound>,
    audit: Option<&Arc<Audit>>,
    face: &Frontend,
    supervisor: &Supervisor,
    stopped: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, ServeError> {
    let Some(audit) = audit else { return Ok(Vec::new()) };
    let sockets: Result<Vec<_>, _> = receivers.into_iter().map(SharedSocket::new).collect();
    let sockets = sockets.map_err(ServeError::Socket)?.into_iter();
    let served = sockets.map(|socket| {
        // kube-apiserver has few connections; a web page has no business here.
        let on = (socket, face.source.network.clone(), Transport::default().connections);
        let routes = (audit::routes(audit.clone()), Origins::default());
        tokio::spawn(serve_routes(supervisor, "audit-listener", on, routes, stopped.clone()))
    });
    Ok(served.collect())
}

/// Starts the task that follows an audit log file.
pub(super) fn follow_audit(
    supervisor: &Supervisor,
    audit: &Arc<Audit>,
    path: &Path,
    stopped: &watch::Receiver<bool>,
) -> JoinHandle<()> {
    let (audit, path) = (audit.clone(), path.to_owned());
    supervisor.spawn("audit-log", stopped.clone(), move || audit::follow(audit.clone(), path.clone()))
}

/// Starts the tasks that revoke expired leases and compact the history.
pub(super) fn revocations(
    supervisor: &Supervisor,
    store: &Arc<Store>,
    (expires, retention): (bool, Option<Retention>),
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let expiring = store.clone();
    let expiry = expires.then(|| {
        supervisor.spawn("lease-expiry", stopped.clone(), move || {
            let store = expiring.clone();
            async move { store.expire_leases().await }
        })
    });
    let compacting = store.clone();
    let compaction = retention.map(|retention| {
        supervisor.spawn("compaction", stopped.clone(), move || {
            let store = compacting.clone();
            async move { compactor::run(&store, retention).await }
        })
    });
    expiry.into_iter().chain(compaction).collect()
}

/// Starts the tasks that follow external commits, the lease and the remotes, and maintain the repository, until the server stops.
pub(super) fn exchanges(
    supervisor: &Supervisor,
    puller: &Arc<Puller>,
    lease: Option<&Arc<Lease>>,
    maintenance: Arc<Maintenance>,
    stop: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let (external, stopped) = (puller.clone(), stop.clone());
    let external = supervisor.spawn("external-commits", stop.clone(), move || {
        gitcd_sync::external::follow(external.merger().clone(), external.statuses().clone(), stopped.clone())
    });
    let leased = lease.map(|lease| {
        let (lease, puller, stopped) = (lease.clone(), puller.clone(), stop.clone());
        supervisor.spawn("writer-lease", stop.clone(), move || {
            let (lease, puller, stopped) = (lease.clone(), puller.clone(), stopped.clone());
            async move { lease.serve(puller.merger(), puller.statuses(), stopped).await }
        })
    });
    let (pulling, stopped) = (puller.clone(), stop.clone());
    let pulling = supervisor.spawn("pull", stop.clone(), move || pulling.clone().run(stopped.clone()));
    let stopped = stop.clone();
    let maintaining = supervisor.spawn("maintenance", stop.clone(), move || {
        let (maintenance, stopped) = (maintenance.clone(), stopped.clone());
        async move { maintenance.run(stopped).await }
    });
    [Some(external), leased, Some(pulling), Some(maintaining)].into_iter().flatten().collect()
}

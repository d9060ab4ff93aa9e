//! The frontend of a branch: its services, and the pages beside them.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use gitcd_core::fence::Fence;
use gitcd_core::supervisor::{FIRST_PAUSE, Supervisor};
use gitcd_engine::audit::Audit;
use gitcd_engine::committer;
use gitcd_engine::maintenance::Maintenance;
use gitcd_mvcc::Store;
use gitcd_net::listener::{Bound, Incoming, Limits, SharedSocket};
use gitcd_net::transport;
use sha1::{Digest, Sha1};
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::{Config, Transport};
use crate::api::{self, Backend, GitHistory, HistoryCounters};
use crate::dispatcher::Dispatcher;
use crate::gateway::Origins;
use crate::http::{self, access};
use crate::member::Member;
use crate::metrics::{Network, Requests, Scrapes, Source};
use crate::status::Reporter;
use crate::telemetry;

/// Everything that answers requests to a branch.
pub(super) struct Frontend {
    pub(super) front: Arc<Dispatcher>,
    pub(super) source: Arc<Source>,
    origins: Origins,
}

impl Frontend {
    pub(super) fn new(
        config: &Config,
        (store, audit): (&Arc<Store>, Option<Arc<Audit>>),
        addresses: &[SocketAddr],
        maintenance: &Arc<Maintenance>,
        committer: Arc<committer::Counters>,
        status: Reporter,
    ) -> Self {
        let (requests, history) = (Requests::default(), Arc::default());
        let backend = backend(config, store, addresses, maintenance, &history);
        let source = Arc::new(Source {
            member: backend.member.clone(),
            packs: gitcd_repo::git_dir(&config.branch.repository).join("objects/pack"),
            quota: config.limits.quota_backend_bytes,
            store: store.clone(),
            committer,
            audit,
            history,
            maintenance: maintenance.counters().clone(),
            status: Arc::new(status),
            requests: requests.clone(),
            network: Arc::default(),
            health: Arc::default(),
            scrapes: Scrapes::default(),
        });
        let routes = telemetry::traced(api::routes(&backend), &config.branch.name);
        let front = Dispatcher::new(backend, routes, http::routes(source.clone()), config.origins.clone(), requests);
        Self { front, source, origins: config.origins.clone() }
    }

    /// Returns routes with the pages only, and the origins of web pages that may read them.
    pub(super) fn pages(&self) -> (Router, Origins) {
        (http::routes_without_values(self.source.clone()), self.origins.clone())
    }
}

fn backend(
    config: &Config,
    store: &Arc<Store>,
    addresses: &[SocketAddr],
    maintenance: &Arc<Maintenance>,
    history: &Arc<HistoryCounters>,
) -> Backend {
    let derived = |what: &str| {
        let digest = Sha1::digest(format!("{what} {} {}", config.branch.name, config.branch.data_reference));
        u64::from_be_bytes(digest[..8].try_into().expect("a SHA-1 has 20 bytes"))
    };
    let client_urls = if config.advertise.is_empty() {
        let schemes = config.listen.iter().map(|listen| if listen.tls { "https" } else { "http" });
        schemes.zip(addresses).map(|(scheme, address)| format!("{scheme}://{address}")).collect()
    } else {
        config.advertise.clone()
    };
    Backend {
        store: store.clone(),
        member: Arc::new(Member {
            cluster_id: config.cluster_id.unwrap_or_else(|| derived("cluster")),
            member_id: config.member_id.unwrap_or_else(|| derived("member")),
            name: config.branch.name.clone(),
            client_urls,
            peer_urls: config.advertise_peer.clone(),
        }),
        limits: config.limits,
        progress_interval: config.progress_interval,
        repository: Arc::new(config.branch.repository.clone()),
        snapshots: api::Spooler::default(),
        pages: Arc::default(),
        // A standby shows what others pushed; its own branch is behind, or is another one.
        history: (config.reads_git && !store.is_standby())
            .then(|| Arc::new(GitHistory::new(config.branch.clone(), history.clone()))),
        maintenance: maintenance.clone(),
    }
}

/// Serves a listener until `stopped`. If it ends earlier, or panics, the store is poisoned: an unreachable server must not look
/// healthy.
pub(super) async fn serve(
    ((listener, certificates), network): (Bound, Arc<Network>),
    (settings, fence): (Transport, Option<Arc<Fence>>),
    front: Arc<Dispatcher>,
    store: Arc<Store>,
    stopped: watch::Receiver<bool>,
) {
    let guard = PoisonOnPanic(store);
    let incoming = Incoming::limited(listener, certificates, network, settings.connections);
    transport::serve(incoming, settings, fence, move |request| front.call(request), stopped.clone()).await;
    if !*stopped.borrow() {
        guard.0.poison("a listener stopped unexpectedly");
    }
}

/// Poisons the store if it is dropped by a panic.
struct PoisonOnPanic(Arc<Store>);

impl Drop for PoisonOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("a listener panicked; see the log");
        }
    }
}

/// The task of a listener for pages.
const PAGES: &str = "status-listener";

/// Serves the pages on a socket until `stopped`, again after a panic. The branch does not depend on it.
pub(super) fn show(
    supervisor: &Supervisor,
    on: (SharedSocket, Arc<Network>, Limits),
    pages: (Router, Origins),
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    serve_routes(supervisor, PAGES, on, pages, stopped)
}

/// Does the same with any routes, as the task `name`.
pub(super) fn serve_routes(
    supervisor: &Supervisor,
    name: &'static str,
    (socket, network, connections): (SharedSocket, Arc<Network>, Limits),
    (pages, origins): (Router, Origins),
    stopped: watch::Receiver<bool>,
) -> impl Future<Output = ()> + Send + use<> {
    let stop = stopped.clone();
    supervisor.run(FIRST_PAUSE, name, stopped, move || {
        let (pages, origins) = (pages.clone(), origins.clone());
        let answer = move |request: hyper::Request<hyper::body::Incoming>| {
            let refused = access::refuse_origin(&origins, &request);
            let pages = pages.clone();
            async move {
                match refused {
                    Some(refused) => Ok(refused),
                    None => pages.oneshot(request.map(Body::new)).await,
                }
            }
        };
        let settings = Transport { connections, ..Transport::default() };
        transport::serve_on((socket.clone(), network.clone()), settings, answer, stop.clone())
    })
}

//! Tests of terms and streams, without a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::watch;

use super::*;
use crate::cache::Scope;
use crate::controller::{Action, Context, Term};
use crate::health::Health;

/// A reconciler that never returns.
struct Hangs(Arc<AtomicUsize>, Arc<Mutex<Vec<Term>>>);

impl Reconciler for Hangs {
    type Object = ConfigMap;
    type Error = kube::Error;

    async fn reconcile(&self, _: Arc<ConfigMap>, context: Context) -> Result<Action, kube::Error> {
        self.1.lock().unwrap().push(context.term);
        self.0.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

/// Adds an object to the cache.
fn learn(caches: &Caches) -> Key {
    let (cache, mut map) = (caches.cache::<ConfigMap>(), ConfigMap::default());
    (map.metadata.name, map.metadata.resource_version) = (Some("a".to_owned()), Some("1".to_owned()));
    let key = Key::of(&map);
    cache.learn(map, cache.lists());
    key
}

/// Returns a client that must not be used.
fn unused() -> Client {
    let refuse = tower::service_fn(async |_: http::Request<kube::client::Body>| {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no request is expected"))
    });
    Client::new(refuse, "default")
}

#[tokio::test]
async fn a_stream_that_is_always_ready_does_not_keep_the_controller_from_its_work() {
    let (caches, begun) = (Caches::new(Scope::All), Arc::new(AtomicUsize::new(0)));
    let key = learn(&caches);
    let reconciler = Hangs(begun.clone(), Arc::default());
    let controller = Controller::new("test", reconciler).reconcile_on(futures::stream::repeat(key));
    let driver = Driver::new(controller, &caches, &Metrics::default());
    let (_role, role) = watch::channel(Role::Leading { term: 1 });
    let (stops, stop) = watch::channel(false);
    let (client, pulse) = (unused(), Health::default().pulse("test"));
    let running = tokio::spawn(driver.run(RunContext { client, role, stop, grace: Duration::ZERO, pulse }));
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    stops.send_replace(true);
    running.await.expect("it stops");
}

#[tokio::test]
async fn a_term_that_ended_and_was_followed_by_another_before_anybody_looked_has_ended() {
    let (caches, begun) = (Caches::new(Scope::All), Arc::new(AtomicUsize::new(0)));
    let terms: Arc<Mutex<Vec<Term>>> = Arc::default();
    learn(&caches);
    let controller = Controller::new("test", Hangs(begun.clone(), terms.clone())).resync(Some(Duration::MAX));
    let driver = Driver::new(controller, &caches, &Metrics::default());
    let (roles, role) = watch::channel(Role::Leading { term: 1 });
    let (_going_on, stop) = watch::channel(false);
    let (client, pulse) = (unused(), Health::default().pulse("test"));
    let running = tokio::spawn(driver.run(RunContext { client, role, stop, grace: Duration::ZERO, pulse }));
    let until = async |times| {
        while begun.load(Ordering::SeqCst) < times {
            assert!(!running.is_finished(), "the controller runs until it is stopped");
            tokio::task::yield_now().await;
        }
    };
    until(1).await;
    roles.send_replace(Role::Standby);
    roles.send_replace(Role::Leading { term: 2 });
    let again = tokio::time::timeout(Duration::from_secs(5), until(2)).await;
    assert!(again.is_ok(), "the reconcile of the first term goes on in the second");
    let are_over: Vec<_> = terms.lock().unwrap().iter().map(Term::is_over).collect();
    assert_eq!(are_over, [true, false]);
    running.abort();
}

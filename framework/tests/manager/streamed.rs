//! Lists as streams, and in pages if the apiserver has no streams.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DeleteParams;
use trishanku_framework::cache::{Cache, Scope};
use trishanku_framework::{Action, Context, Key, Manager};
use trishanku_testkit::{Fault, Proxy, Rule, wait};

use crate::support::{Log, Running, Tank, cluster, controller, create, run, tanks};

const STREAMS: &str = "sendInitialEvents";
const PAGES: &str = "limit=";

/// A manager behind a proxy that logs the tanks that it reconciles.
fn logging(proxy: &Proxy, namespace: &str, log: &Log) -> (Running, Arc<Cache<Tank>>) {
    let logs = log.clone();
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([namespace]));
    let cache = manager.caches().cache::<Tank>();
    let running = run(manager.controller(controller(move |tank: Arc<Tank>, _: Context| {
        logs.add(tank.name_any());
        async { Ok(Action::Change) }
    })));
    (running, cache)
}

#[tokio::test]
async fn a_list_is_read_as_a_stream_and_again_after_a_gap() {
    let (cluster, namespace) = cluster("streamed").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    let api = tanks(cluster.client(), &namespace);
    create(&api, &["a", "b"]).await;
    let (running, cache) = logging(&proxy, &namespace, &log);
    log.until(1, "a").await;
    log.until(1, "b").await;
    create(&api, &["c"]).await;
    log.until(1, "c").await;
    let uris: Vec<_> = proxy.seen().into_iter().map(|seen| seen.uri).collect();
    assert!(uris.len() == 1 && uris[0].contains(STREAMS), "{uris:?}");

    // The watch is interrupted, and its version has expired by then: what happened meanwhile is in the next stream.
    proxy.add(Rule::new(Fault::Status { code: 410, retry_after: None }).watches().times(1));
    proxy.partition();
    api.delete("a", &DeleteParams::default()).await.unwrap();
    create(&api, &["d"]).await;
    proxy.cut();
    proxy.heal();
    log.until(1, "d").await;
    let gone = wait::until("the deletion is noticed", async || match cache.get(&Key::namespaced(&namespace, "a")) {
        None => Ok(()),
        Some(tank) => Err(format!("{:?}", tank.metadata)),
    });
    gone.await.unwrap();
    assert_eq!(cache.len(), 3);
    running.stop().await;
}

#[tokio::test]
async fn an_apiserver_without_streams_is_asked_for_pages_and_for_a_stream_only_once() {
    let (cluster, namespace) = cluster("paged").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    proxy.add(Rule::new(Fault::Status { code: 422, retry_after: None }).path(STREAMS));
    let api = tanks(cluster.client(), &namespace);
    create(&api, &["a"]).await;
    let (running, _) = logging(&proxy, &namespace, &log);
    log.until(1, "a").await;
    proxy.add(Rule::new(Fault::Status { code: 410, retry_after: None }).watches().times(1));
    proxy.cut();
    create(&api, &["b"]).await;
    log.until(1, "b").await;
    // More than two, if the first watch was answered with the 410 and the cut interrupted the second list.
    let pages = wait::until("a second list", async || {
        let seen = proxy.seen();
        let pages = seen.iter().filter(|seen| seen.uri.contains(PAGES)).count();
        if pages >= 2 { Ok(seen) } else { Err(format!("{seen:?}")) }
    });
    let seen = pages.await.unwrap();
    assert_eq!(seen.iter().filter(|seen| seen.uri.contains(STREAMS)).count(), 1, "{seen:?}");
    running.stop().await;
}

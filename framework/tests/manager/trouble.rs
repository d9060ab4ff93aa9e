//! A failing apiserver: everything recovers, without a hot loop.

use std::time::{Duration, Instant};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::client::connect;
use trishanku_framework::lease::Fence;
use trishanku_framework::{Action, Manager};
use trishanku_testkit::{Fault, Proxy, Rule, TestCluster, wait};

use crate::support::{Log, Problem, Tank, cluster, controller, create, run, tanks};

fn status(code: u16, retry_after: Option<u32>) -> Fault {
    Fault::Status { code, retry_after }
}

/// A manager behind a proxy. It writes the level of each tank, and logs it.
fn writing(proxy: &Proxy, namespace: &str, log: &Log) -> Manager {
    let logs = log.clone();
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([namespace]));
    manager.controller(controller(move |tank, context| {
        let (api, logs) = (tanks(context.client, &tank.namespace().unwrap_or_default()), logs.clone());
        async move {
            logs.add("tries");
            let level = tank.spec.level;
            let patch = Patch::Merge(json!({"status": {"level": level}}));
            api.patch_status(&tank.name_any(), &PatchParams::default(), &patch).await.map_err(Problem::Api)?;
            logs.add(format!("{} at {level}", tank.name_any()));
            Ok(Action::Change)
        }
    }))
}

#[tokio::test]
async fn a_client_tries_nothing_again_by_itself_whatever_the_configuration_says() {
    let (cluster, namespace) = cluster("once").await;
    let proxy = Proxy::start(cluster).await;
    proxy.add(Rule::new(status(503, None)).times(1));
    let mut config = proxy.config();
    // The default.
    config.default_retry = true;
    let client = connect(config, &Fence::open(), None).unwrap();
    let error = tanks(client, &namespace).get("a").await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.code == 503), "{error}");
    assert_eq!(proxy.seen().len(), 1);
}

#[tokio::test]
async fn watches_that_end_at_once_are_opened_once_a_second_and_miss_nothing() {
    let (cluster, namespace) = cluster("ending").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    let running = run(writing(&proxy, &namespace, &log));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "a at 0").await;
    let (start, before) = (Instant::now(), proxy.seen().len());
    let ending = async {
        loop {
            proxy.end_watches();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let changing = async {
        for level in 1..4 {
            let patch = Patch::Merge(json!({"spec": {"level": level}}));
            tanks(cluster.client(), &namespace).patch("a", &PatchParams::default(), &patch).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = ending => {}
        () = changing => {}
    }
    let (calls, seconds) = (proxy.seen().len() - before, start.elapsed().as_secs_f64());
    // Three at once, then one a second, and the writes.
    assert!((calls as f64) < 3.0 + seconds + 3.0 * 2.0, "{calls} calls in {seconds} s");
    log.until(1, "a at 3").await;
    running.stop().await;
}

#[tokio::test]
async fn an_overloaded_server_is_left_alone_for_as_long_as_it_asks() {
    let (cluster, namespace) = cluster("busy").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    proxy.add(Rule::new(status(429, Some(2))).writes().times(2));
    let running = run(writing(&proxy, &namespace, &log));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "a at 0").await;
    let tries = log.times("tries");
    assert_eq!(tries.len(), 3);
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(2)), "{tries:?}");
    running.stop().await;
}

#[tokio::test]
async fn conflicts_and_lost_answers_are_tried_again_less_and_less_often() {
    let (cluster, namespace) = cluster("conflicts").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    proxy.add(Rule::new(status(409, None)).writes().times(4));
    proxy.add(Rule::new(Fault::BreakAfter).writes().times(1));
    proxy.add(Rule::new(status(500, None)).watches().times(2));
    proxy.add(Rule::new(Fault::Break).path("sendInitialEvents").times(1));
    let running = run(writing(&proxy, &namespace, &log));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "a at 0").await;
    let tries = log.times("tries");
    assert_eq!(tries.len(), 6);
    // 50 ms, doubling, less at most a quarter.
    for (pair, least) in tries.windows(2).zip([37, 75, 150, 300, 300]) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(least), "{tries:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn an_apiserver_that_crashes_and_a_kind_that_goes_are_worked_with_again_when_they_come_back() {
    let cluster = TestCluster::start().await.unwrap();
    let (log, namespace) = (Log::default(), "default");
    let proxy = Proxy::start(&cluster).await;
    // The kind does not exist yet: the manager waits for it.
    let manager = writing(&proxy, namespace, &log);
    let health = manager.health();
    let running = run(manager);
    cluster.install(&Tank::crd()).await;
    create(&tanks(cluster.client(), namespace), &["a"]).await;
    log.until(1, "a at 0").await;
    assert_eq!(health.ready(), Ok(()));

    cluster.kill_apiserver().await;
    let (start, before) = (Instant::now(), proxy.seen().len());
    cluster.start_apiserver().await.unwrap();
    let calls = proxy.seen().len() - before;
    assert!(calls < 20, "{calls} calls in {:?} to a server that was down", start.elapsed());
    create(&tanks(cluster.client(), namespace), &["b"]).await;
    log.until(1, "b at 0").await;

    // The deletion of the kind deletes all of its objects.
    let kinds: Api<CustomResourceDefinition> = Api::all(cluster.client());
    kinds.delete(Tank::crd_name(), &DeleteParams::default()).await.unwrap();
    wait::until_gone(&kinds, Tank::crd_name()).await.unwrap();
    cluster.install(&Tank::crd()).await;
    create(&tanks(cluster.client(), namespace), &["a", "c"]).await;
    log.until(2, "a at 0").await;
    log.until(1, "c at 0").await;
    running.stop().await;
}

#[tokio::test]
async fn a_server_that_takes_requests_and_never_answers_is_asked_again() {
    let (cluster, namespace) = cluster("silent").await;
    let (proxy, log) = (Proxy::start(cluster).await, Log::default());
    // The first list and the first watch hang; then a connection goes silent.
    proxy.add(Rule::new(Fault::Hang).path("sendInitialEvents").times(1));
    proxy.add(Rule::new(Fault::Hang).watches().times(1));
    let manager = writing(&proxy, &namespace, &log).answer_limit(Duration::from_secs(1));
    let running = run(manager);
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "a at 0").await;
    proxy.add(Rule::new(status(410, None)).watches().times(1));
    proxy.cut();
    proxy.partition();
    let before = proxy.seen().len();
    let asked = wait::until("three requests", async || {
        let seen = proxy.seen();
        if seen.len() >= before + 3 { Ok(()) } else { Err(format!("{:?}", &seen[before..])) }
    });
    asked.await.unwrap();
    proxy.heal();
    create(&tanks(cluster.client(), &namespace), &["b"]).await;
    log.until(1, "b at 0").await;
    running.stop().await;
}

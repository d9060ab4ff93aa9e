//! Faults of a proxy; everything else passes.

use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use trishanku_testkit::{Fault, Proxy, Rule, TestCluster};

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

async fn start() -> (Proxy, Api<ConfigMap>, Api<ConfigMap>) {
    let cluster = TestCluster::shared().await;
    let (proxy, namespace) = (Proxy::start(cluster).await, cluster.namespace("proxy").await);
    let through = Api::namespaced(proxy.client(), &namespace);
    (proxy, through, Api::namespaced(cluster.client(), &namespace))
}

fn code(result: kube::Result<ConfigMap>) -> u16 {
    match result {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(_) => 0,
    }
}

#[tokio::test]
async fn requests_fail_as_rules_say_and_no_longer() {
    let (proxy, through, direct) = start().await;
    proxy.add(Rule::new(Fault::Status { code: 409, retry_after: None }).writes().path("configmaps").times(2));
    proxy.add(Rule::new(Fault::BreakAfter).writes().times(1));
    proxy.add(Rule::new(Fault::Break).method(http::Method::GET).times(1));
    let mut codes = Vec::new();
    for name in ["a", "b", "c", "d"] {
        codes.push(code(through.create(&PostParams::default(), &map(name)).await));
    }
    assert_eq!(codes, [409, 409, 0, 200]);
    let there = [direct.get_opt("a").await, direct.get_opt("c").await].map(|found| found.unwrap().is_some());
    assert_eq!(there, [false, true], "a rejected write had no effect; a write without a response did");
    assert_eq!([code(through.get("c").await), code(through.get("c").await)], [0, 200]);
    assert_eq!(proxy.seen().len(), 6);
}

#[tokio::test]
async fn watches_break_end_and_hang() {
    let (proxy, through, direct) = start().await;
    let watch = async || Box::pin(through.watch(&WatchParams::default().disable_bookmarks(), "0").await.unwrap());
    let (mut broken, mut ended, mut parted) = (watch().await, None, None);
    direct.create(&PostParams::default(), &map("a")).await.unwrap();
    let first = broken.try_next().await;
    assert!(matches!(first, Ok(Some(WatchEvent::Added(_)))), "{first:?}");
    proxy.cut();
    assert!(!matches!(broken.try_next().await, Ok(Some(_))), "kube reports some broken connections only as an end");

    let stream = ended.insert(watch().await);
    assert!(matches!(stream.try_next().await, Ok(Some(WatchEvent::Added(_)))));
    proxy.end_watches();
    assert!(matches!(stream.try_next().await, Ok(None)));

    let stream = parted.insert(watch().await);
    assert!(matches!(stream.try_next().await, Ok(Some(WatchEvent::Added(_)))));
    proxy.partition();
    direct.create(&PostParams::default(), &map("b")).await.unwrap();
    let moment = Duration::from_millis(300);
    assert!(tokio::time::timeout(moment, stream.try_next()).await.is_err());
    assert!(tokio::time::timeout(moment, through.get("a")).await.is_err());
    proxy.heal();
    let event = stream.try_next().await.unwrap();
    assert!(matches!(event, Some(WatchEvent::Added(map)) if map.name_any() == "b"));
}

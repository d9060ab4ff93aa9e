//! Traces of reconciles, from the trigger down to the store.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt, ResourceExt};
use tracing::Instrument;
use trishanku_framework::apply::{ApplySet, Owned};
use trishanku_framework::cache::Scope;
use trishanku_framework::queue::Backoff;
use trishanku_framework::telemetry::{Format, Settings, TraceContext};
use trishanku_framework::{Action, Controller, Manager};
use trishanku_testkit::{Collector, Span, TestCluster};

use crate::support::{Does, Log, Problem, Tank, controller, create, run, tank, tanks};
use crate::writer::Lines;

const SOON: Backoff = Backoff { first: Duration::from_millis(10), most: Duration::from_millis(10) };
const ORIGIN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Waits for the n-th reconcile of a tank.
async fn reconcile(collector: &Collector, name: &str, attempt: u32) -> Span {
    let is = |span: &Span| {
        let attributes = ["object.name", "attempt"].map(|key| span.attribute(key));
        span.name() == "reconcile" && attributes == [name.to_owned(), attempt.to_string()]
    };
    collector.span(&format!("reconcile {attempt} of {name}"), is).await.unwrap()
}

async fn below(collector: &Collector, parent: &Span, name: &str) -> Span {
    collector
        .span(&format!("{name} below {}", parent.name()), |span| span.is_child_of(parent) && span.name() == name)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_reconcile_is_a_trace_that_the_apiserver_and_its_store_continue() {
    let collector = Collector::start().await;
    let cluster = TestCluster::traced(collector.address()).await.unwrap();
    cluster.install(&Tank::crd()).await;
    let lines = Lines::default();
    let settings = Settings::new("tanks").collector(collector.url()).spans_of("manager");
    let settings = settings.format(Format::Json).writer(lines.clone());
    let (subscriber, telemetry) = settings.build().unwrap();
    let _of_this_thread = tracing::dispatcher::set_default(&subscriber);

    let (api, maps) = (tanks(cluster.client(), "default"), Api::<ConfigMap>::namespaced(cluster.client(), "default"));
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces(["default"])).telemetry(&telemetry);
    let (cache, log) = (Owned::without_trigger(manager.caches().cache::<ConfigMap>()), Log::default());
    let logs = log.clone();
    let reconciler = controller(move |tank: Arc<Tank>, context| {
        let (cache, logs) = (cache.clone(), logs.clone());
        async move {
            let mut set = ApplySet::of(&*tank, context.client.clone(), "tanks").stamping_traces();
            let wanted = ConfigMap {
                metadata: kube::api::ObjectMeta { name: Some(tank.name_any()), ..Default::default() },
                ..ConfigMap::default()
            };
            let mixing = tracing::info_span!("mixing");
            set.apply(wanted, &cache).instrument(mixing).await.map_err(|_| Problem::Broken)?;
            logs.add(tank.name_any());
            assert!(tank.name_any() != "panics", "as it is asked to");
            if context.failures == 0 {
                let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(context.client, "default");
                secrets.get("does-not-exist").await?;
            }
            logs.add("done");
            Ok(Action::Change)
        }
    });
    let running = run(manager.controller(reconciler));
    let mut stamped = tank("stamped");
    TraceContext::parse(ORIGIN).unwrap().stamp(&mut stamped);
    for tank in [stamped, tank("panics")] {
        api.create(&PostParams::default(), &tank).await.unwrap();
    }
    log.until(1, "done").await;
    log.until(1, "panics").await;
    // Stopping the manager flushes traces, before a batch is full or five seconds old.
    running.stop().await;

    let first = reconcile(&collector, "stamped", 1).await;
    assert_eq!((first.service.as_str(), first.span.parent_span_id.len(), first.is_error()), ("tanks", 0, true));
    let attributes =
        ["controller", "object.kind", "object.namespace", "object.generation", "trigger", "outcome", "error.type"];
    let expected = ["test", "Tank", "default", "1", "changed", "error", "NotFound"];
    assert_eq!(attributes.map(|key| first.attribute(key)), expected);
    assert_eq!((first.linked("previous"), first.linked("origin")), (vec![], vec!["b7ad6b7169203331".to_owned()]));
    let second = reconcile(&collector, "stamped", 2).await;
    assert_eq!([second.attribute("trigger"), second.attribute("outcome")], ["due", "success"]);
    assert_eq!((second.linked("previous"), second.is_error()), (vec![first.span_id()], false));
    assert!(!second.is_of_trace_of(&first));

    // The apply, in the reconciler's own span, down to the store.
    let mixing = below(&collector, &first, "mixing").await;
    let call = below(&collector, &mixing, "PATCH /api/v1/namespaces/{namespace}/configmaps/{name}").await;
    let attributes = [
        "http.request.method",
        "url.template",
        "url.full",
        "server.address",
        "server.port",
        "http.response.status_code",
    ];
    let url = cluster.config().cluster_url;
    let [base, port] = [url.to_string(), url.port_u16().unwrap().to_string()];
    let path = "/api/v1/namespaces/{namespace}/configmaps/{name}";
    let full = format!("{base}api/v1/namespaces/default/configmaps/stamped");
    assert_eq!(attributes.map(|key| call.attribute(key)), ["PATCH", path, &full, "127.0.0.1", &port, "201"]);
    assert!(!call.is_error() && call.span.kind == 3, "{call:?}");
    let served =
        collector.span("apiserver span", |span| span.is_child_of(&call) && span.service == "apiserver").await.unwrap();
    assert_eq!(served.attribute("http.request.method"), "PATCH", "{served:?}");

    // The failed request. Names of spans contain no names of objects.
    let missing = below(&collector, &first, "GET /api/v1/namespaces/{namespace}/secrets/{name}").await;
    assert_eq!(["http.response.status_code", "error.type"].map(|key| missing.attribute(key)), ["404", "404"]);
    assert!(missing.is_error());
    let ours: Vec<_> = collector.spans().into_iter().filter(|span| span.service == "tanks").collect();
    for span in &ours {
        let text = format!("{:?}", span.span.attributes);
        assert!(!text.contains('?') && !text.contains("fieldManager") && !text.contains("Bearer"), "{text}");
    }
    let requests: Vec<_> = ours.iter().filter(|span| !matches!(span.name(), "reconcile" | "mixing")).collect();
    assert!(requests.iter().all(|span| span.name().contains(" /api")), "no other spans are exported: {requests:#?}");

    let panicked = reconcile(&collector, "panics", 1).await;
    assert_eq!((panicked.attribute("outcome"), panicked.is_error()), ("panic".to_owned(), true));

    // The created object has the stamp of its reconcile, which causes no further writes.
    let map = maps.get("stamped").await.unwrap();
    let stamp = TraceContext::on(&map).expect("the map is stamped");
    assert_eq!((stamp.trace_id(), stamp.span_id()), (first.trace_id(), mixing.span_id()));
    assert!(!requests.iter().any(|span| span.is_of_trace_of(&second)), "nothing differs: {requests:#?}");

    let text = lines.text();
    let line = text.lines().find(|line| line.contains("NotFound")).expect("the failure is logged");
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["trace_id"], &line["span_id"]), (&first.trace_id().into(), &first.span_id().into()), "{line}");
    assert_eq!((&line["object.name"], &line["controller"]), (&"stamped".into(), &"test".into()), "{line}");
    telemetry.end().await;

    // The store exports its last spans when it stops, so the collector must run meanwhile.
    tokio::task::spawn_blocking(move || drop(cluster)).await.unwrap();
    let written =
        |span: &Span| span.is_of_trace_of(&first) && span.service == "gitcd" && span.name() == "etcdserverpb.KV/Txn";
    collector.span("the store's span", written).await.unwrap();
}

#[tokio::test]
async fn cancelled_and_timed_out_reconciles_are_distinguished() {
    let (cluster, namespace) = crate::support::cluster("cancelled").await;
    let collector = Collector::start().await;
    let (subscriber, telemetry) = Settings::new("tanks").collector(collector.url()).build().unwrap();
    let _of_this_thread = tracing::dispatcher::set_default(&subscriber);
    let log = Log::default();
    let hangs = |name: &'static str| {
        let logs = log.clone();
        let reconcile = move |_, _| {
            logs.add(name);
            std::future::pending::<Result<Action, Problem>>()
        };
        Controller::new(name, Does { reconcile, clean_up: None::<fn(_) -> _> })
    };
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])).grace(Duration::ZERO);
    let limited = hangs("limited").time_limit(Duration::from_millis(20)).backoff(SOON);
    let running = run(manager.telemetry(&telemetry).controller(limited).controller(hangs("patient")));
    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(2, "limited").await;
    log.until(1, "patient").await;
    running.stop().await;
    let first = async |controller: &str| {
        let is = |span: &Span| [span.attribute("controller"), span.attribute("attempt")] == [controller, "1"];
        let span = collector.span(controller, is).await.unwrap();
        (span.attribute("outcome"), span.attribute("error.type"), span.is_error())
    };
    assert_eq!(first("limited").await, ("timeout".to_owned(), "TimedOut".to_owned(), true));
    assert_eq!(first("patient").await, ("cancelled".to_owned(), String::new(), false));
    telemetry.end().await;
}

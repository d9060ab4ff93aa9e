//! Pages of a manager at work.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use tokio::sync::Semaphore;
use trishanku_framework::cache::Scope;
use trishanku_framework::serve::{Addresses, BindError, Server};
use trishanku_framework::telemetry::Settings;
use trishanku_framework::{Manager, Next, lease};
use trishanku_testkit::{Fault, Proxy, Rule, wait};

use crate::support::{Log, cluster, controller, create, run, tanks};
use crate::writer::Lines;

/// Asks a page; its status and text.
async fn ask(address: SocketAddr, method: Method, path: &str, body: &str) -> kube::Result<(u16, String)> {
    let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap()))?;
    let request = http::Request::builder().method(method).uri(path).body(Body::from(body.as_bytes().to_vec())).unwrap();
    let answer = client.send(request).await?;
    let status = answer.status().as_u16();
    let text = answer.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(text.to_vec()).unwrap()))
}

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, Method::GET, path, "").await.unwrap()
}

fn free() -> Addresses {
    let [probes, metrics, debug] = [(); 3].map(|()| "localhost:0".parse().unwrap());
    Addresses { probes, metrics, debug }
}

#[tokio::test]
async fn probes_figures_and_what_is_logged_while_a_manager_works() {
    let (cluster, namespace) = cluster("serving").await;
    let lines = Lines::default();
    let (subscriber, telemetry) = Settings::new("tanks").writer(lines.clone()).build().unwrap();
    let _of_this_thread = tracing::dispatcher::set_default(&subscriber);
    let server = Server::bind(&free()).await.unwrap();
    let [probes, metrics, debug] = [server.probes(), server.metrics(), server.debug()].map(Option::unwrap);

    let proxy = Proxy::start(cluster).await;
    proxy.add(Rule::new(Fault::Delay(Duration::from_secs(1))).path("/tanks").times(1));
    let (log, go) = (Log::default(), Arc::new(Semaphore::new(0)));
    let (logs, going) = (log.clone(), go.clone());
    let waiter = controller(move |_, _| {
        let (logs, going) = (logs.clone(), going.clone());
        async move {
            logs.add("begun");
            tracing::debug!("as it is asked to say");
            going.acquire().await.unwrap().forget();
            Ok(Next::Change)
        }
    });
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]))
        .leader_election(lease::Settings::new(&namespace, "tank"))
        .serve(server)
        .telemetry(&telemetry)
        .controller(waiter);
    let running = run(manager);
    let answers = wait::until("the first answer", async || {
        ask(probes, Method::GET, "/readyz", "").await.map_err(|error| error.to_string())
    });
    let not_ready = "[-]cache/Tank failed: reason withheld\n[-]start failed: reason withheld\nreadyz check failed\n";
    assert_eq!(answers.await.unwrap(), (500, not_ready.to_owned()));
    wait::until("it to be ready", async || match get(probes, "/readyz?verbose").await {
        (200, text) => Ok(text),
        other => Err(format!("{other:?}")),
    })
    .await
    .map(|text| assert_eq!(text, "[+]cache/Tank ok\n[+]start ok\nreadyz check passed\n"))
    .unwrap();

    create(&tanks(cluster.client(), &namespace), &["a"]).await;
    log.until(1, "begun").await;
    assert_eq!(get(probes, "/livez?verbose").await.1, "[+]ping ok\n[+]controller/test ok\nlivez check passed\n");
    assert_eq!(get(probes, "/livez/controller/test").await, (200, "ok".to_owned()));
    let (status, text) = get(metrics, "/metrics").await;
    assert_eq!(status, 200);
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {text}"));
        line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()
    };
    assert_eq!(value(&text, "controller_runtime_active_workers{controller=\"test\"}"), 1.0);
    assert!(value(&text, "workqueue_unfinished_work_seconds{") > 0.0, "{text}");
    assert_eq!(value(&text, "workqueue_depth{name=\"test\",controller=\"test\",priority=\"0\"}"), 0.0);
    assert_eq!(value(&text, "leader_election_master_status{name=\"tank\"}"), 1.0);
    let authority = proxy.config().cluster_url.authority().unwrap().to_string();
    let listed = format!("rest_client_requests_total{{code=\"200\",method=\"GET\",host=\"{authority}\"}}");
    assert!(value(&text, &listed) >= 2.0, "a list and a watch: {text}");
    go.add_permits(100);
    wait::until("it to be counted", async || match get(metrics, "/metrics").await.1 {
        text if text.contains("controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1") => Ok(()),
        text => Err(text),
    })
    .await
    .unwrap();
    assert_eq!(families(&text), expected());

    // What is logged, from now on.
    assert!(!lines.text().contains("as it is asked to say"), "{}", lines.text());
    assert_eq!(get(debug, "/debug/log").await, (200, "info\n".to_owned()));
    let put = |filter| ask(debug, Method::PUT, "/debug/log", filter);
    assert_eq!(put("loud=loud").await.unwrap().0, 400);
    assert_eq!(put("info,manager=debug").await.unwrap().0, 200);
    create(&tanks(cluster.client(), &namespace), &["b"]).await;
    wait::until(
        "a line",
        async || {
            if lines.text().contains("as it is asked to say") { Ok(()) } else { Err(lines.text()) }
        },
    )
    .await
    .unwrap();
    running.stop().await;
    for address in [probes, metrics, debug] {
        assert!(ask(address, Method::GET, "/", "").await.is_err(), "nobody is there any more");
    }
}

#[tokio::test]
async fn a_port_that_is_taken_and_a_debug_page_for_everybody_are_refused_by_name() {
    let server = Server::bind(&free()).await.unwrap();
    let taken = server.metrics().unwrap();
    let addresses = Addresses { metrics: taken.to_string().parse().unwrap(), ..Addresses::default() };
    let error = Server::bind(&addresses).await.unwrap_err().to_string();
    assert_eq!(error, format!("cannot listen on {taken} for metrics"));
    let open = Addresses { debug: ":0".parse().unwrap(), ..Addresses::default() };
    assert!(matches!(Server::bind(&open).await, Err(BindError::NotLoopback(_))));
    let none = Server::bind(&Addresses::default()).await.unwrap();
    assert_eq!((none.probes(), none.metrics(), none.debug()), (None, None, None));
}

/// Kind, labels, and of histograms the bounds.
type Family = (String, BTreeSet<String>, Vec<String>);

/// What is on a page of plain text.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            name.clone_into(&mut current);
            families.entry(current.clone()).or_default().0 = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| line.starts_with(&current)) {
            let family = families.get_mut(&current).unwrap();
            for (name, value) in labels.split(",").filter_map(|label| label.split_once('=')) {
                let value = value.split('"').nth(1).unwrap().to_owned();
                if name != "le" {
                    family.1.insert(name.to_owned());
                } else if !family.2.contains(&value) {
                    family.2.push(value);
                }
            }
        }
    }
    families
}

/// What controller-runtime v0.24.1 has, by its source: `pkg/internal/controller/metrics/metrics.go`, `pkg/internal/metrics/workqueue.go`,
/// `pkg/metrics/leaderelection.go` and `pkg/metrics/client_go_adapter.go`; of the latter the latency as of its main branch in August 2026.
fn expected() -> BTreeMap<String, Family> {
    const RECONCILE: &str = "0.005 0.01 0.025 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.25 1.5 1.75 \
                             2 2.5 3 3.5 4 4.5 5 6 7 8 9 10 15 20 25 30 40 50 60 +Inf";
    const QUEUE: &str = "1e-08 1e-07 1e-06 1e-05 0.0001 0.001 0.01 0.1 1 10 100 1000 +Inf";
    const REQUEST: &str = "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60 +Inf";
    [
        ("controller_runtime_reconcile_total", "counter", "controller result", ""),
        ("controller_runtime_reconcile_errors_total", "counter", "controller", ""),
        ("controller_runtime_terminal_reconcile_errors_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_panics_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_timeouts_total", "counter", "controller", ""),
        ("controller_runtime_reconcile_time_seconds", "histogram", "controller", RECONCILE),
        ("controller_runtime_max_concurrent_reconciles", "gauge", "controller", ""),
        ("controller_runtime_active_workers", "gauge", "controller", ""),
        ("workqueue_depth", "gauge", "name controller priority", ""),
        ("workqueue_adds_total", "counter", "name controller", ""),
        ("workqueue_queue_duration_seconds", "histogram", "name controller", QUEUE),
        ("workqueue_work_duration_seconds", "histogram", "name controller", QUEUE),
        ("workqueue_unfinished_work_seconds", "gauge", "name controller", ""),
        ("workqueue_longest_running_processor_seconds", "gauge", "name controller", ""),
        ("workqueue_retries_total", "counter", "name controller", ""),
        ("leader_election_master_status", "gauge", "name", ""),
        ("leader_election_slowpath_total", "counter", "name", ""),
        ("rest_client_requests_total", "counter", "code method host", ""),
        ("rest_client_request_duration_seconds", "histogram", "verb host", REQUEST),
    ]
    .into_iter()
    .map(|(name, kind, labels, bounds)| {
        let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
        (name.to_owned(), (kind.to_owned(), words(labels).into_iter().collect(), words(bounds)))
    })
    .collect()
}

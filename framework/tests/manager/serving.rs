//! Endpoints of a running manager.

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
use trishanku_framework::{Action, Manager, lease};
use trishanku_testkit::{Fault, Proxy, Rule, wait};

use crate::metrics::{expected, families};
use crate::support::{Log, cluster, controller, create, run, tanks};
use crate::writer::Lines;

/// Sends a request; returns its status and text.
async fn ask(address: SocketAddr, method: Method, path: &str, body: &str) -> kube::Result<(u16, String)> {
    let mut config = kube::Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    let client = Client::try_from(config)?;
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
async fn probes_metrics_and_what_is_logged_while_a_manager_works() {
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
            Ok(Action::Change)
        }
    });
    let manager = Manager::with_scope(proxy.config(), Scope::namespaces([&namespace]))
        .leader_election(lease::Settings::new(&namespace, "tank"))
        .serve(server)
        .telemetry(&telemetry)
        .controller(waiter);
    let running = run(manager);
    let answers = wait::until("the first response", async || {
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
    let authority = proxy.config().cluster_url.authority().unwrap().to_string();
    for line in [
        "controller_runtime_active_workers{controller=\"test\"} 1",
        "workqueue_adds_total{name=\"test\",controller=\"test\"} 1",
        "workqueue_depth{name=\"test\",controller=\"test\",priority=\"0\"} 0",
        "leader_election_master_status{name=\"tank\"} 1",
    ] {
        assert!(text.lines().any(|there| there == line), "{line} is not in\n{text}");
    }
    // The first read of the lease, before it exists; a new kind may be missing for a moment, too.
    let looked = format!("rest_client_requests_total{{code=\"404\",method=\"GET\",host=\"{authority}\"}} ");
    assert!(text.contains(&looked), "{text}");
    let idle = "workqueue_unfinished_work_seconds{name=\"test\",controller=\"test\"} 0.0";
    assert!(!text.lines().any(|line| line == idle), "{text}");
    go.add_permits(100);
    wait::until("it to be counted", async || match get(metrics, "/metrics").await.1 {
        text if text.contains("controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1") => Ok(()),
        text => Err(text),
    })
    .await
    .unwrap();
    assert_eq!(families(&text), expected());

    // The log filter changes at run time.
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
        assert!(ask(address, Method::GET, "/", "").await.is_err(), "the endpoints are closed");
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

//! What audit events cost kube-apiserver: `cargo test --release -p gitcd --test audit cost -- --ignored --nocapture`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::apiserver::{Backend, Cluster};
use crate::map;

const ROUNDS: usize = 15;
const WRITES: usize = 400;
const CONNECTIONS: usize = 4;

/// One cluster, its client, and what its rounds took.
struct Side {
    cluster: Cluster,
    client: reqwest::Client,
    elapsed: Vec<Duration>,
    processor: Vec<Duration>,
}

impl Side {
    async fn start(backend: Backend) -> Self {
        let cluster = Cluster::start(backend).await;
        let names: Vec<_> = (0..CONNECTIONS).map(|number| map(&format!("m{number}"), &json!({"a": "0"}))).collect();
        cluster.done("admin", "create", Some(&json!({"apiVersion": "v1", "kind": "List", "items": names})));
        let client = Cluster::client();
        Self { cluster, client, elapsed: Vec::new(), processor: Vec::new() }
    }

    async fn round(&mut self, round: usize) {
        let (start, before) = (Instant::now(), self.cluster.processor_time());
        let patches = (0..CONNECTIONS).map(|connection| {
            let (client, cluster) = (&self.client, &self.cluster);
            async move {
                let url = cluster.url(&format!("/api/v1/namespaces/default/configmaps/m{connection}"));
                for write in 0..WRITES / CONNECTIONS {
                    let body = json!({"data": {"a": format!("{round}-{write}"), "b": "x".repeat(1024)}}).to_string();
                    let request = client.patch(&url).header("content-type", "application/merge-patch+json").body(body);
                    let answer = request.send().await.expect("kube-apiserver answers");
                    assert_eq!(answer.status(), 200);
                    // An unread answer is a reset stream, of which a connection allows only some.
                    answer.bytes().await.expect("the answer is complete");
                }
            }
        });
        futures::future::join_all(patches).await;
        self.elapsed.push(start.elapsed());
        self.processor.push(self.cluster.processor_time().saturating_sub(before));
    }
}

fn median(values: &mut [Duration]) -> f64 {
    values.sort();
    values[values.len() / 2].as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn cost() {
    let mut sides = [Side::start(Backend::None).await, Side::start(Backend::Webhook).await];
    for round in 0..ROUNDS {
        // In turn, so that other load on the machine affects both.
        let first = round % 2;
        sides[first].round(round).await;
        sides[1 - first].round(round).await;
    }
    let [without, with] = &mut sides;
    for (what, without, with) in [
        ("time", median(&mut without.elapsed), median(&mut with.elapsed)),
        ("processor time of kube-apiserver", median(&mut without.processor), median(&mut with.processor)),
    ] {
        let rate = |seconds: f64| WRITES as f64 / seconds;
        println!(
            "{what}: {:.0} and {:.0} writes a second, {:+.1} %",
            rate(without),
            rate(with),
            (with / without - 1.0) * 100.0
        );
    }
}

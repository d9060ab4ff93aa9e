//! The page of the health, of a real gitcd.

#[expect(dead_code, reason = "the tests of the undo use more of it")]
mod ui;

use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use trishanku_testkit::TestCluster;

use crate::ui::Ui;

/// How long a condition may take on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);

async fn serve(cluster: &TestCluster, options: &[&str]) -> Ui {
    Ui::start(&cluster.folder().join("repo.git"), options).await
}

async fn health(ui: &Ui) -> String {
    ui.client.page("/health").await.body
}

/// Returns the value of a fact on the page.
fn fact(body: &str, name: &str) -> String {
    let (_, rest) = body.split_once(&format!("<dt>{name}</dt><dd>")).unwrap_or_else(|| panic!("no {name}: {body}"));
    let (value, _) = rest.split_once("</dd>").expect("the element has an end");
    value.replace("<bdi>", "").replace("</bdi>", "")
}

#[tokio::test]
async fn the_health_of_a_gitcd_is_its_status() {
    let cluster = TestCluster::start().await.expect("the programs are installed");
    let ui = serve(&cluster, &["--no-review", "--endpoint", cluster.store_url()]).await;
    let body = health(&ui).await;
    assert!(body.contains("State: <strong class=\"mark\"><bdi>running</bdi>"), "{body}");
    assert_eq!((&*fact(&body, "Role"), &*fact(&body, "Rejected files")), ("writer", "0"));
    assert_eq!(fact(&body, "Conflicts"), "0");
    assert!(fact(&body, "Size").contains("iB"), "{body}");

    // A write changes the revision, and after a moment the committed one.
    let before: i64 = fact(&body, "Revision").parse().expect("it is a number");
    let map = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("a".into()), ..Default::default() },
        ..Default::default()
    };
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    maps.create(&PostParams::default(), &map).await.expect("it is created");
    let deadline = Instant::now() + WITHIN;
    loop {
        let body = health(&ui).await;
        let number = |name| fact(&body, name).parse::<i64>().expect("it is a number");
        if number("Committed revision") > before && fact(&body, "Commit lag") == "none" {
            assert!(number("Revision") >= number("Committed revision"), "{body}");
            break;
        }
        assert!(Instant::now() < deadline, "the write is not committed: {body}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    // Without kube-apiserver, whose rights decide, the health is shown without errors in full.
    let kubeconfig = cluster.kubeconfig(None);
    let kubeconfig = kubeconfig.to_str().expect("it is UTF-8");
    let ui = serve(&cluster, &["--kubeconfig", kubeconfig, "--endpoint", cluster.store_url()]).await;
    assert!(!health(&ui).await.contains("not shown in full"), "an administrator sees all");
    cluster.kill_apiserver().await;
    // Answers about rights are used for a minute, so a new page asks.
    let ui = serve(&cluster, &["--kubeconfig", kubeconfig, "--endpoint", cluster.store_url()]).await;
    let body = health(&ui).await;
    assert!(body.contains("not shown in full") && fact(&body, "Role") == "writer", "{body}");
}

#[tokio::test]
async fn a_gitcd_that_is_not_reachable_is_not_healthy() {
    let cluster = TestCluster::start().await.expect("the programs are installed");
    // A bound port without a listener: connections are refused, and no other process can use the port.
    let bound = tokio::net::TcpSocket::new_v4().expect("sockets can be made");
    bound.bind("127.0.0.1:0".parse().expect("it is an address")).expect("a port is free");
    let closed = format!("http://{}", bound.local_addr().expect("it is bound"));
    let ui = serve(&cluster, &["--no-review", "--endpoint", &closed]).await;
    let body = health(&ui).await;
    assert!(body.contains("State: <strong class=\"mark warn\"><bdi>not reachable</bdi>"), "{body}");
    assert!(body.contains("does not report its status") && body.contains("cannot connect"), "{body}");
    // What Git has is shown all the same.
    assert!(fact(&body, "Committed revision").parse::<i64>().is_ok_and(|revision| revision > 1), "{body}");

    let ui = serve(&cluster, &["--no-review"]).await;
    let body = health(&ui).await;
    assert!(body.contains("State: <strong class=\"mark warn\"><bdi>unknown</bdi>"), "{body}");
    assert!(body.contains("start the page with --endpoint"), "{body}");
    assert_eq!(fact(&body, "Commit lag"), "unknown");

    // The metadata of another branch: the gitcd serves refs/heads/main.
    let other = ["--no-review", "--data-reference=refs/heads/copy", "--metadata-reference=refs/gitcd/metadata/main"];
    let mut git = Command::new("git");
    git.arg("-C").arg(cluster.folder().join("repo.git")).args(["update-ref", "refs/heads/copy", "refs/heads/main"]);
    assert!(git.status().expect("Git is installed").success());
    let ui = serve(&cluster, &[&other[..], &["--endpoint", cluster.store_url()]].concat()).await;
    let body = health(&ui).await;
    assert!(body.contains("serves another branch") && body.contains("class=\"mark warn\"><bdi>running"), "{body}");
}

//! Commits name the users of kube-apiserver.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each test program uses a part of it")]
mod support;

mod apiserver;
#[path = "../tls/authority.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod authority;
mod cost;
mod events;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::apiserver::{Backend, Cluster};
use crate::support::eventually;

fn map(name: &str, data: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
}

/// Waits until the log of a key has a number of entries.
async fn entries(cluster: &Cluster, key: &str, count: usize) -> Vec<(String, Value)> {
    eventually(key, async || {
        // The key is not in Git yet.
        let known = cluster.store.repository().run(&["log", "-1", "--format=%H", support::DATA, "--", key]);
        if known.stdout.is_empty() {
            return None;
        }
        let log = cluster.log(key);
        assert!(log.len() <= count, "{log:?}");
        (log.len() == count).then_some(log)
    })
    .await
}

fn users(log: &[(String, Value)]) -> Vec<(&str, &str)> {
    log.iter().map(|(what, actor)| (what.as_str(), actor["user"].as_str().unwrap_or("-"))).collect()
}

#[tokio::test]
async fn every_kind_of_request_is_shown_with_its_user() {
    let cluster = Cluster::start(Backend::Webhook).await;
    let key = "configmaps/default/prices";
    cluster.done("jane", "create", Some(&map("prices", &json!({"tea": "3"}))));
    cluster.done("bob", r#"patch configmap prices --type=merge -p={"data":{"tea":"4"}}"#, None);
    // Requests that write nothing, of other users.
    cluster.done("dry", r#"patch configmap prices --dry-run=server --type=merge -p={"data":{"tea":"9"}}"#, None);
    cluster.done("noop", r#"patch configmap prices --type=merge -p={"data":{"tea":"4"}}"#, None);
    let missing = cluster.kubectl("missing", ["patch", "configmap", "others", "-p={}"], None);
    assert!(!missing.status.success());
    cluster.done("system:serviceaccount:shop:till", "replace", Some(&map("prices", &json!({"tea": "5"}))));
    let apply = "apply --server-side --force-conflicts --field-manager=deployer";
    cluster.done("apply", apply, Some(&map("prices", &json!({"tea": "6"}))));
    cluster.done(
        "admin",
        r#"patch configmap prices --type=json -p=[{"op":"add","path":"/data/cup","value":"1"}]"#,
        None,
    );
    cluster.done("delete", "delete configmap prices", None);
    let log = entries(&cluster, key, 6).await;
    let expected = [
        ("create", "jane"),
        ("update", "bob"),
        ("update", "system:serviceaccount:shop:till"),
        ("update", "apply"),
        ("update", "admin"),
        ("delete", "delete"),
    ];
    assert_eq!(users(&log), expected);
    let verbs: Vec<_> = log.iter().map(|(_, actor)| actor["verb"].as_str().unwrap_or_default()).collect();
    assert_eq!(verbs, ["create", "patch", "update", "patch", "patch", "delete"]);
    let (jane, admin) = (&log[0].1, &log[4].1);
    assert_eq!(
        (jane["impersonator"].as_str(), admin["impersonator"].as_str()),
        (Some("admin"), None),
        "{jane} {admin}"
    );
    assert!(jane["agent"].as_str().is_some_and(|agent| agent.starts_with("kubectl")), "{jane}");
    assert_eq!(jane["source"], "127.0.0.1");
    assert_eq!(jane["groups"], json!(["system:masters"]));
    let found = cluster.store.repository().git(&["log", "--format=%s", "--grep=\"user\":\"bob\"", support::DATA]);
    assert_eq!(found, format!("update {key}\n"));
    subresources_and_collections(&cluster).await;
    secrets_stay_secret(&cluster).await;
    hostile_names(&cluster).await;
}

async fn subresources_and_collections(cluster: &Cluster) {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    cluster.done("jane", "create", Some(&deployment));
    cluster.done("scale", "scale deployment web --replicas=3", None);
    let status = r#"patch deployment web --subresource=status --type=merge -p={"status":{"replicas":3}}"#;
    cluster.done("status", status, None);
    let log = entries(cluster, "deployments/default/web", 3).await;
    assert_eq!(users(&log), [("create", "jane"), ("update", "scale"), ("update", "status")]);
    assert_eq!((&log[1].1["subresource"], &log[2].1["subresource"]), (&json!("scale"), &json!("status")));
    let diff = cluster.gitcd(&["diff", "--json", "--since=nothing", "deployments/default/web"]);
    let actors = diff["keys"][0]["actors"].as_array().expect("the actors are a list").iter();
    let newest_first: Vec<_> = actors.map(|actor| actor["user"].as_str().unwrap_or_default()).collect();
    assert_eq!(newest_first, ["status", "scale", "jane"]);

    let (metadata, spec) = (json!({"name": "one"}), json!({"containers": [{"name": "a", "image": "b"}]}));
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    cluster.done("jane", "create", Some(&pod));
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"name": "node"}});
    cluster.done("bind", "create --raw=/api/v1/namespaces/default/pods/one/binding", Some(&binding));
    cluster.done("delete", "delete pod one --force --grace-period=0", None);
    // kube-apiserver marks the Pod before it removes it. Only the removal is in the response.
    let log = entries(cluster, "pods/default/one", 4).await;
    assert_eq!(users(&log), [("create", "jane"), ("update", "bind"), ("update", "-"), ("delete", "delete")]);

    // The last finalizer of a deleted object.
    let mut held = map("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.done("jane", "create", Some(&held));
    cluster.done("delete", "delete configmap held --wait=false", None);
    cluster.done("release", r#"patch configmap held --type=merge -p={"metadata":{"finalizers":null}}"#, None);
    let log = entries(cluster, "configmaps/default/held", 3).await;
    assert_eq!(users(&log), [("create", "jane"), ("update", "delete"), ("delete", "release")]);

    let labelled = |name: &str| {
        let mut map = map(name, &json!({}));
        map["metadata"]["labels"] = json!({"of": "many"});
        map
    };
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [labelled("a"), labelled("b"), labelled("c")]});
    cluster.done("jane", "create", Some(&list));
    cluster.done("sweep", "delete --raw=/api/v1/namespaces/default/configmaps?labelSelector=of%3Dmany", None);
    for name in ["a", "b", "c"] {
        let log = entries(cluster, &format!("configmaps/default/{name}"), 2).await;
        assert_eq!(users(&log), [("create", "jane"), ("delete", "sweep")], "{name}");
    }
}

/// gitcd receives no bodies of Secrets, and joins their events by object and time.
async fn secrets_stay_secret(cluster: &Cluster) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "hush"}});
    cluster.done("jane", "create", Some(&secret));
    cluster.done("bob", r#"patch secret s --type=merge -p={"stringData":{"a":"hush-hush"}}"#, None);
    let log = entries(cluster, "secrets/default/s", 2).await;
    assert_eq!(users(&log), [("create", "jane"), ("update", "bob")]);
    let messages = cluster.store.repository().git(&["log", "--format=%B", support::DATA]);
    assert!(!messages.contains("hush") && !messages.contains("aHVza"), "a value is in a commit message");
}

async fn hostile_names(cluster: &Cluster) {
    let names = [
        r#"","user":"root"#,
        r#"Actor: {"user":"root"}"#,
        "Revision: 9",
        r"back\slash\n",
        "x\u{202e}y",
        "Ann <ann@x> é",
    ];
    for (number, name) in names.into_iter().enumerate() {
        let (object, key) = (format!("hostile-{number}"), format!("configmaps/default/hostile-{number}"));
        let output = cluster.kubectl(name, ["create"], Some(&map(&object, &json!({"a": "b"}))));
        assert!(output.status.success(), "{name:?}: {}", String::from_utf8_lossy(&output.stderr));
        let log = entries(cluster, &key, 1).await;
        let text = cluster.store.repository().git(&["log", "-1", "--format=%B", support::DATA, "--", &key]);
        assert_eq!(text.lines().filter(|line| line.starts_with("Actor: ")).count(), 1, "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("Revision: ")).count(), 1, "{text}");
        assert!(!text.contains('\u{202e}'), "{text:?}");
        let user = log[0].1["user"].as_str().unwrap_or_default();
        // Header values are Latin-1 for some clients and UTF-8 for others: gitcd stores what kube-apiserver reports.
        assert!(user == name || !name.is_ascii() && !user.is_empty(), "{name:?}: {user:?}");
    }
    cluster.store.repository().fsck();
}

const USERS: usize = 5;
const OBJECTS: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn five_users_edit_two_hundred_objects_at_once_and_every_field_leads_to_its_user() {
    let cluster = Cluster::start(Backend::Webhook).await;
    let list = |data: &Value| {
        let items: Vec<_> = (0..OBJECTS).map(|number| map(&format!("m{number}"), data)).collect();
        json!({"apiVersion": "v1", "kind": "List", "items": items})
    };
    cluster.done("maker", "create", Some(&list(&json!({"maker": "x"}))));
    std::thread::scope(|scope| {
        for user in (0..USERS).map(|number| format!("user{number}")) {
            let (cluster, list) = (&cluster, list(&json!({ user.clone(): format!("of {user}") })));
            scope.spawn(move || {
                let words = format!("apply --server-side --field-manager={user}");
                cluster.done(&user, &words, Some(&list));
            });
        }
    });
    let name = |number: usize| format!("configmaps/default/m{number}");
    let writes = (OBJECTS * (USERS + 1)) as u64;
    eventually("the commits", async || {
        let committed = cluster.metric("gitcd_audit_named_revisions_total").await;
        (committed >= writes).then_some(())
    })
    .await;
    for key in (0..OBJECTS).map(name) {
        let blame = eventually("the last flush", async || {
            let blame = cluster.gitcd(&["blame", "--json", &key]);
            let count =
                blame["fields"].as_array().map_or(0, |fields| fields.iter().filter(|field| is_data(field)).count());
            (count == USERS + 1).then_some(blame)
        })
        .await;
        for field in blame["fields"].as_array().into_iter().flatten().filter(|field| is_data(field)) {
            let user = field["path"].as_str().and_then(|path| path.strip_prefix("data.")).expect("it is of data");
            let actors = field["actors"].as_array().expect("the actors are a list");
            assert_eq!(actors.len(), 1, "{key}: {field}");
            assert_eq!(actors[0]["user"], user, "{key}: {field}");
        }
    }
    for name in ["gitcd_audit_ambiguous_revisions_total", "gitcd_audit_dropped_events_total"] {
        assert_eq!(cluster.metric(name).await, 0, "{name}");
    }
}

fn is_data(field: &Value) -> bool {
    field["path"].as_str().is_some_and(|path| path.starts_with("data."))
}

#[tokio::test]
async fn a_log_file_of_kube_apiserver_serves_as_well() {
    let cluster = Cluster::start(Backend::Log).await;
    cluster.done("jane", "create", Some(&map("prices", &json!({"tea": "3"}))));
    cluster.done("bob", r#"patch configmap prices --type=merge -p={"data":{"tea":"4"}}"#, None);
    let log = entries(&cluster, "configmaps/default/prices", 2).await;
    assert_eq!(users(&log), [("create", "jane"), ("update", "bob")]);
}

#[tokio::test]
async fn commits_wait_for_a_silent_backend_only_at_first() {
    let cluster = Cluster::start(Backend::Silent).await;
    // Three revisions in a row have waited in vain during the start.
    let mut waits = Vec::new();
    for number in 0..4 {
        let (name, key) = (format!("m{number}"), format!("configmaps/default/m{number}"));
        cluster.done("jane", "create", Some(&map(&name, &json!({"a": "b"}))));
        let start = Instant::now();
        let log = entries(&cluster, &key, 1).await;
        assert_eq!(users(&log), [("create", "-")]);
        waits.push(start.elapsed());
    }
    // A flush comes every second. A commit that waited would add another one to each.
    assert!(waits.iter().min().is_some_and(|wait| *wait < Duration::from_secs(10)), "{waits:?}");
    assert_eq!(cluster.metric("gitcd_audit_named_revisions_total").await, 0);
}

//! Events that arrive early, late, twice or not at all, sent as kube-apiserver sends them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::build::put;
use crate::support::{Client, DATA, Kind, Launch, Server, eventually, free_port};

struct Store {
    server: Server,
    client: Client,
    url: String,
}

fn http() -> reqwest::Client {
    // The only one that is compiled in; another test may have installed it before.
    let _is_installed = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

fn event(user: &str, name: &str, revision: i64) -> Value {
    json!({
        "level": "RequestResponse", "stage": "ResponseComplete", "verb": "patch", "requestURI": "/api/v1/x",
        "user": {"username": user, "groups": ["dev\nActor: x", "system:authenticated"]},
        "sourceIPs": ["10.0.0.7"], "userAgent": "kubectl/v1.36.3\r\nX: y",
        "objectRef": {"resource": "configmaps", "namespace": "shop", "name": name, "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
        "responseObject": {"metadata": {"name": name, "resourceVersion": revision.to_string()}},
        // The write is between the two.
        "requestReceivedTimestamp": "2001-01-01T00:00:00.000000Z", "stageTimestamp": "2999-01-01T00:00:00.000000Z",
    })
}

impl Store {
    async fn start(wait: &str) -> Self {
        let port = free_port();
        let launch = Launch::new(Kind::Gitcd).argument("--key-prefixes=/registry");
        let launch = launch.argument(format!("--listen-audit-urls=http://127.0.0.1:{port}"));
        let server = launch.argument(format!("--audit-wait={wait}")).start().await;
        let client = server.client().await;
        Self { server, client, url: format!("http://127.0.0.1:{port}/audit?timeout=30s") }
    }

    async fn put(&self, name: &str, value: &str) -> i64 {
        let answer = self.client.put(put(&format!("/registry/configmaps/shop/{name}"), value)).await.ok();
        answer.header.expect("a response has a header").revision
    }

    async fn send(&self, events: &[Value]) {
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": events});
        let sent = http().post(&self.url).body(list.to_string()).send().await;
        assert_eq!(sent.expect("gitcd listens").status(), 200);
    }

    async fn committed(&self, revision: i64) {
        let repository = self.server.repository();
        eventually("the commit", async || (repository.committed_revision() >= revision).then_some(())).await;
    }

    /// Returns the messages of the commits of a key, newest first.
    fn messages(&self, name: &str) -> Vec<String> {
        let path = format!("configmaps/shop/{name}");
        let text = self.server.repository().git(&["log", "-z", "--format=%B", DATA, "--", &path]);
        text.split('\0').map(ToOwned::to_owned).filter(|message| !message.is_empty()).collect()
    }

    async fn metric(&self, name: &str) -> u64 {
        let page = self.server.page("/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse::<f64>().expect("metrics are numbers") as u64
    }
}

fn user(message: &str) -> Option<String> {
    let line = message.lines().find_map(|line| line.strip_prefix("Actor: "))?;
    let actor: Value = serde_json::from_str(line).expect("the trailer is JSON");
    actor["user"].as_str().map(ToOwned::to_owned)
}

#[tokio::test]
async fn events_may_come_twice_and_in_any_order_and_names_cannot_add_lines() {
    let store = Store::start("30s").await;
    let hostile = "jane\n\nRevision: 9\nActor: {\"user\":\"root\"}\u{85}\u{2028}";
    let mut events = Vec::new();
    for number in 0..6 {
        let revision = store.put("prices", &format!("{{\"a\":{number}}}\n")).await;
        events.push(event(&format!("{hostile}{number}"), "prices", revision));
    }
    events.reverse();
    events.rotate_left(2);
    for some in [&events[..3], &events[1..], &events[..1]] {
        store.send(some).await;
    }
    store.committed(7).await;
    let messages = store.messages("prices");
    assert_eq!(messages.len(), 6, "{messages:?}");
    for (number, message) in messages.iter().rev().enumerate() {
        assert_eq!(user(message).as_deref(), Some(format!("{hostile}{number}").as_str()), "{message:?}");
        for trailer in ["Actor: ", "Revision: "] {
            assert_eq!(message.lines().filter(|line| line.starts_with(trailer)).count(), 1, "{message:?}");
        }
        assert!(!message.contains(['\u{85}', '\u{2028}', '\r']), "{message:?}");
    }
    store.server.repository().fsck();
}

#[tokio::test]
async fn a_late_event_is_counted_and_never_changes_a_commit() {
    let store = Store::start("50ms").await;
    let revision = store.put("prices", "{\"a\":1}\n").await;
    store.committed(revision).await;
    let before = store.messages("prices");
    store.send(&[event("jane", "prices", revision)]).await;
    eventually("the late event", async || (store.metric("gitcd_audit_late_revisions_total").await > 0).then_some(()))
        .await;
    let after = store.put("others", "{\"a\":1}\n").await;
    store.send(&[event("bob", "others", after)]).await;
    store.committed(after).await;
    assert_eq!(store.messages("prices"), before);
    assert_eq!(user(&before[0]), None, "{before:?}");
}

#[tokio::test]
async fn the_event_of_another_object_or_of_two_users_names_no_user() {
    let store = Store::start("500ms").await;
    let (one, two) = (store.put("one", "{\"a\":1}\n").await, store.put("two", "{\"a\":1}\n").await);
    store.send(&[event("jane", "other", one), event("jane", "two", two), event("bob", "two", two)]).await;
    store.committed(two).await;
    assert_eq!([user(&store.messages("one")[0]), user(&store.messages("two")[0])], [None, None]);
    assert_eq!(store.metric("gitcd_audit_ambiguous_revisions_total").await, 1);
}

/// kube-apiserver writes `compact_rev_key`, which has no prefix.
#[tokio::test]
async fn keys_outside_the_prefix_are_committed_and_have_no_user() {
    let store = Store::start("200ms").await;
    for key in ["compact_rev_key", "/elsewhere/a"] {
        store.client.put(put(key, "{\"a\":1}\n")).await.ok();
    }
    let revision = store.put("prices", "{\"a\":1}\n").await;
    store.send(&[event("jane", "prices", revision)]).await;
    store.committed(revision).await;
    assert_eq!(user(&store.messages("prices")[0]).as_deref(), Some("jane"));
    assert_eq!(store.metric("gitcd_audit_unnamed_revisions_total").await, 2);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_events() {
    let mut store = Store::start("30s").await;
    let revision = store.put("prices", "{\"a\":1}\n").await;
    let start = std::time::Instant::now();
    store.server.terminate().await;
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    assert!(store.server.repository().committed_revision() >= revision);
}

#[tokio::test]
async fn bodies_that_are_no_events_are_refused() {
    let store = Store::start("50ms").await;
    let send = async |body: &'static str| {
        let sent = http().post(&store.url).body(body).send().await.expect("gitcd listens");
        sent.status().as_u16()
    };
    assert_eq!(send("{").await, 400);
    assert_eq!(send(r#"{"kind":"Secret","apiVersion":"v1"}"#).await, 400);
    assert_eq!(store.metric("gitcd_audit_invalid_total").await, 2);
    let url = store.url.replace("/audit", "/v3/kv/put");
    let other = http().post(url).body("{}").send().await.expect("gitcd listens");
    assert_eq!(other.status(), 404, "the listener serves no keys");
}

/// A lock file makes the update of the branch fail; then everything is committed once more.
#[tokio::test]
async fn users_survive_a_commit_that_fails() {
    let store = Store::start("30s").await;
    let first = store.put("prices", "{\"a\":1}\n").await;
    store.send(&[event("jane", "prices", first)]).await;
    store.committed(first).await;
    let lock = store.server.repository().path().join(format!("{DATA}.lock"));
    std::fs::write(&lock, "").expect("the repository is writable");
    let second = store.put("prices", "{\"a\":2}\n").await;
    store.send(&[event("bob", "prices", second)]).await;
    let failed = async || (store.metric("gitcd_commit_failures_total").await > 0).then_some(());
    eventually("the commit to fail", failed).await;
    std::fs::remove_file(&lock).expect("the lock exists");
    store.committed(second).await;
    let users: Vec<_> = store.messages("prices").iter().map(|message| user(message)).collect();
    assert_eq!(users, [Some("bob".to_owned()), Some("jane".to_owned())]);
    assert_eq!(store.metric("gitcd_audit_named_revisions_total").await, 2, "none is counted twice");
}

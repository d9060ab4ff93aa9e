//! The page of the health, by a source of the test's; `cli/tests/health.rs` has a real one.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use trishanku_page::Services;
use trishanku_page::health::{
    BranchHealth, ComponentHealth, Finding, Health, HealthReport, HealthState, RemoteHealth, StoreSize,
};
use trishanku_page::rights::{Granted, Rights, RightsError, UnrestrictedRights};

use crate::client::Client;
use crate::world::{Served, World};

/// A source that answers what the test sets.
#[derive(Clone, Default)]
struct Scripted(Arc<Mutex<HealthReport>>);

impl Health for Scripted {
    fn report(&self) -> BoxFuture<'static, HealthReport> {
        std::future::ready(self.0.lock().clone()).boxed()
    }
}

/// A user with a right to some objects at most, or a kube-apiserver that does not answer.
struct Limited(Result<(), &'static str>);

impl Rights for Limited {
    fn review(
        &self,
        _objects: std::collections::BTreeSet<trishanku_page::rights::ObjectRef>,
    ) -> BoxFuture<'_, Result<Granted, RightsError>> {
        let granted = self.0.map(|()| Granted::default()).map_err(|error| RightsError(error.to_owned()));
        std::future::ready(granted).boxed()
    }
}

async fn open(world: &World, rights: Arc<dyn Rights>, source: &Scripted) -> (Served, Client) {
    let services = Services { health: Some(Arc::new(source.clone())), ..Services::read_only(rights) };
    let served = world.serve_with(services, "127.0.0.1:0").await;
    let client = served.log_in().await;
    (served, client)
}

fn state(word: &str, is_good: bool) -> HealthState {
    HealthState { word: word.to_owned(), is_good }
}

fn report() -> HealthReport {
    let remote = RemoteHealth {
        name: "origin".to_owned(),
        reference: "refs/heads/desk".to_owned(),
        condition: Some(state("Unreachable", false)),
        lag_commits: Some(1000),
        has_more: true,
        lag_seconds: Some(7300.0),
    };
    let problem = |what: &str, details: &[&str]| Finding {
        what: what.to_owned(),
        details: details.iter().map(ToString::to_string).collect(),
    };
    let branch = BranchHealth {
        name: "kube-scheduler".to_owned(),
        reference: "refs/heads/ks/data".to_owned(),
        state: state("running", false),
        role: Some("writer".to_owned()),
        head: Some("0123456789abcdef".to_owned()),
        revision: Some(42),
        committed_revision: Some(40),
        lag_revisions: Some(2),
        lag_seconds: Some(0.25),
        conflicts: Some(3),
        rejected: Some(1),
        size: Some(StoreSize { bytes: 7 << 20, quota: Some(8 << 20) }),
        restarts: Some(5),
        remotes: vec![remote],
        problems: vec![
            problem("1 file rejected", &["secrets/hushed/<b>\u{202e}"]),
            problem("writes refused", &["hushed: </pre><script>alert(1)</script>"]),
        ],
    };
    let component = ComponentHealth {
        name: "kube-scheduler/gitcd".to_owned(),
        state: state("ready", true),
        uptime_seconds: Some(7300),
        restarts: 5,
    };
    HealthReport {
        state: Some(state("degraded", false)),
        branches: vec![branch],
        components: vec![component],
        problems: vec![problem("kube-scheduler/app: exited with code 1", &["hushed"])],
    }
}

#[tokio::test]
async fn the_health_has_the_words_and_numbers_of_the_status() {
    let world = World::new(1);
    let source = Scripted(Arc::new(Mutex::new(report())));
    let (_served, client) = open(&world, Arc::new(UnrestrictedRights), &source).await;
    assert!(client.page("/").await.links().contains(&"/health".to_owned()), "the navigation has a link");
    let page = client.page("/health").await;
    for part in [
        "State: <strong class=\"mark warn\">",
        "<h2><bdi>kube-scheduler</bdi> <strong class=\"mark warn\"><bdi>running</bdi>",
        "<dt>Branch</dt><dd><bdi>ks/data</bdi></dd>",
        "<dt>Role</dt><dd><bdi>writer</bdi></dd>",
        "<dt>Revision</dt><dd><bdi>42</bdi></dd>",
        "<dt>Committed revision</dt><dd><bdi>40</bdi></dd>",
        "<bdi>2 revisions, 0.2 s</bdi>",
        "<dt>Rejected files</dt><dd><bdi>1</bdi></dd>",
        "<dt>Conflicts</dt><dd><bdi>3</bdi></dd>",
        "7.0 MiB of 8.0 MiB <strong class=\"mark warn\">nearly full",
        "more than 1000 commits, 2 h",
        "<th scope=\"row\"><bdi>kube-scheduler/gitcd</bdi></th>",
        "data-poll=\"5000\"",
        "secrets/hushed/&lt;b&gt;",
        "hushed: &lt;/pre&gt;&lt;script&gt;",
    ] {
        assert!(page.body.contains(part), "{part}: {}", page.body);
    }
    assert_eq!(page.body.matches("<script").count(), 1, "errors are inert: {}", page.body);
    assert!(!page.body.contains('\u{202e}'), "{}", page.body);

    // What an open page reads a moment later.
    *source.0.lock() = HealthReport { state: Some(state("ready", true)), ..HealthReport::default() };
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !client.page("/health").await.body.contains("data-head=\"ready\"") {
        assert!(std::time::Instant::now() < deadline, "the page has the new state");
    }
}

#[tokio::test]
async fn errors_that_may_name_objects_need_the_right_to_everything() {
    let world = World::new(1);
    let source = Scripted(Arc::new(Mutex::new(report())));
    for (rights, note) in
        [(Ok(()), "which needs the right to everything"), (Err("port 5 is closed"), "port 5 is closed")]
    {
        let (_served, client) = open(&world, Arc::new(Limited(rights)), &source).await;
        // Without kube-apiserver, too: that is when the health is needed.
        let page = client.page("/health").await;
        assert!(!page.body.contains("hushed"), "{}", page.body);
        assert!(page.body.contains("1 file rejected") && page.body.contains(note), "{}", page.body);
    }
}

#[tokio::test]
async fn an_unknown_health_is_not_shown_as_healthy() {
    let world = World::new(1);
    let (_served, client) = world.open().await;
    assert_eq!(client.get("/health").await.status, 404, "there is no source");
    let source = Scripted(Arc::new(Mutex::new(HealthReport::unknown("the state cannot be read", Vec::new()))));
    let (served, client) = open(&world, Arc::new(UnrestrictedRights), &source).await;
    let page = client.page("/health").await;
    assert!(page.body.contains("State: <strong class=\"mark warn\">unknown</strong>"), "{}", page.body);
    assert!(page.body.contains("the state cannot be read"), "{}", page.body);
    assert_eq!(served.client().get("/health").await.status, 403, "it needs the login");
}

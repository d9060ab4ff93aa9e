//! The page of the health, by a source of the test's; `cli/tests/health.rs` has a real one.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use trishanku_page::Services;
use trishanku_page::health::HealthReport;
use trishanku_page::rights::{Granted, Rights, RightsError, UnrestrictedRights};

use crate::client::Client;
use crate::health_source::{HealthSource, report, state};
use crate::world::{Served, World};

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

async fn open(world: &World, rights: Arc<dyn Rights>, source: &HealthSource) -> (Served, Client) {
    let services = Services { health: Some(Arc::new(source.clone())), ..Services::read_only(rights) };
    let served = world.serve_with(services, "127.0.0.1:0").await;
    let client = served.log_in().await;
    (served, client)
}

#[tokio::test]
async fn the_health_has_the_words_and_numbers_of_the_status() {
    let world = World::new(1);
    let source = HealthSource::of(report());
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
    source.set(HealthReport { state: Some(state("ready", true)), ..HealthReport::default() });
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !client.page("/health").await.body.contains("data-head=\"ready\"") {
        assert!(std::time::Instant::now() < deadline, "the page has the new state");
    }
}

#[tokio::test]
async fn errors_that_may_name_objects_need_the_right_to_everything() {
    let world = World::new(1);
    let source = HealthSource::of(report());
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
    let source = HealthSource::of(HealthReport::unknown("the state cannot be read", Vec::new()));
    let (served, client) = open(&world, Arc::new(UnrestrictedRights), &source).await;
    let page = client.page("/health").await;
    assert!(page.body.contains("State: <strong class=\"mark warn\">unknown</strong>"), "{}", page.body);
    assert!(page.body.contains("the state cannot be read"), "{}", page.body);
    assert_eq!(served.client().get("/health").await.status, 403, "it needs the login");
}

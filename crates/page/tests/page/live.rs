//! Events.

use std::time::{Duration, Instant};

use crate::world::{World, map};

#[tokio::test]
async fn a_new_commit_is_announced_and_the_page_has_it_then() {
    let mut world = World::new(1);
    let (_served, client) = world.open().await;
    let mut events = client.events().await;
    let first = events.next().await;
    assert!(client.page("/").await.body.contains(&format!("data-head=\"{first}\"")), "the page has the announced head");

    let commit = world.put(0, &[("/registry/configmaps/shop/a", Some(&map("a", "1")))]);
    let written = Instant::now();
    let mut head = events.next().await;
    // The data reference moves before the metadata reference.
    let metadata = world.repository().refname_to_id("refs/gitcd/metadata/b0").expect("it exists").to_string();
    while !head.ends_with(&metadata) {
        head = events.next().await;
    }
    assert!(written.elapsed() < Duration::from_secs(10), "{:?}", written.elapsed());
    assert_ne!(head, first);
    assert!(head.starts_with(&commit.to_string()), "{head}");
    let page = client.page("/").await;
    assert!(page.body.contains(&format!("data-head=\"{head}\"")) && page.body.contains(&format!("/commit/{commit}")));
}

#[tokio::test]
async fn a_page_of_older_commits_does_not_move() {
    let mut world = World::new(1);
    let commit = world.put(0, &[("/registry/configmaps/shop/a", Some(&map("a", "1")))]);
    let (_served, client) = world.open().await;
    assert!(client.page("/").await.body.contains(" data-live"));
    assert!(!client.page(&format!("/?before={commit}")).await.body.contains(" data-live"));
}

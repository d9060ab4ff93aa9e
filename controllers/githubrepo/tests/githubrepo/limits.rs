//! Rate limits of GitHub.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::Method;
use serde_json::json;

use crate::world::{World, settings};

#[tokio::test]
async fn a_secondary_limit_stops_everybody_with_the_token_and_is_no_news_of_what_is_as_it_should_be() {
    let mut world = World::new(settings()).await;
    world.apply("settled", json!({})).await;
    world.is_ready("settled").await;
    let version = async || world.objects().get("settled").await.unwrap().metadata.resource_version;
    let before = version().await;
    // Much longer than the check below, so that it is not over on a busy machine.
    world.fake.refuse(
        &Method::POST,
        "/user/repos",
        1,
        403,
        &[("retry-after", "15")],
        "You have exceeded a secondary rate limit. ECHO",
    );
    world.apply("next", json!({})).await;
    let waiting = world.is("next", "Ready", "False", "RateLimited").await;
    assert!(waiting.message.contains("secondary limit"), "{waiting:?}");
    let calls = world.fake.calls().len();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.fake.calls().len(), calls, "{:?}", world.fake.calls());
    assert_eq!(version().await, before);
    world.is_ready("next").await;
    let writes = world.fake.writes();
    assert_eq!(writes, ["POST /user/repos 201", "POST /user/repos 403", "POST /user/repos 201"]);
    world.stop().await;
}

#[tokio::test]
async fn a_primary_limit_is_not_used_up_and_others_keep_some_of_it() {
    let mut world = World::new(settings()).await;
    world.apply("one", json!({})).await;
    world.is_ready("one").await;
    world.fake.remaining.store(102, Ordering::SeqCst);
    // Only requests that find changes are counted.
    let (id, _) = world.fake.repository("someone", "one").unwrap();
    for turn in 0..20 {
        world.fake.edit(id, |kept| kept.topics = vec![format!("t{turn}")]);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(world.fake.remaining.load(Ordering::SeqCst) >= 98, "{:?}", world.fake.remaining);
    world.apply("two", json!({})).await;
    let waiting = world.is("two", "Ready", "False", "RateLimited").await;
    assert!(waiting.message.contains("requests per hour"), "{waiting:?}");
    // Another token has its own limits.
    let other = "ghp_AnotherSecretThatNobodySees";
    world.fake.kingdom.lock().tokens.insert(other.to_owned(), ("someone".to_owned(), true));
    world.fake.remaining.store(5_000, Ordering::SeqCst);
    world.token(other).await;
    world.is_ready("two").await;
    world.stop().await;
}

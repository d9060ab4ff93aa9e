//! Many repositories with one token.

use std::time::Duration;

use futures::StreamExt as _;
use kube::api::ListParams;
use serde_json::json;
use trishanku_githubrepo::GitHubSettings;
use trishanku_testkit::wait;

use crate::world::{World, settings};

const REPOSITORIES: usize = 500;

#[tokio::test]
async fn five_hundred_repositories_stay_within_the_limits_of_one_token() {
    let usual = GitHubSettings::default();
    // A usual round in a hundredth of the time. Another test covers the pacing of writes.
    let quick = GitHubSettings {
        resync: usual.resync / 100,
        between_writes: Duration::ZERO,
        writes_per_hour: 2 * REPOSITORIES,
        ..settings()
    };
    let mut world = World::new(GitHubSettings { resync: Duration::from_hours(10), ..quick.clone() }).await;
    let names = (0..REPOSITORIES).map(|at| format!("r{at}"));
    futures::stream::iter(names).for_each_concurrent(8, |name| world.apply_owned(name, json!({"private": true}))).await;
    let ready = async || {
        let objects = world.objects().list(&ListParams::default()).await.unwrap().items;
        let count =
            objects.iter().filter(|object| object.status.as_ref().is_some_and(|status| status.id.is_some())).count();
        if count == REPOSITORIES { Ok(()) } else { Err(count) }
    };
    wait::until_within(Duration::from_mins(4), "all exist", ready).await.unwrap();
    let calls = world.fake.calls();
    // One request for the token's user, then one lookup and one write for each repository.
    assert_eq!(calls.len(), 1 + 2 * REPOSITORIES);

    // After a restart, the manager looks up each repository once; from then on, unchanged ones only cost conditional
    // requests, which are not counted.
    world.stop().await;
    world.start(quick.clone());
    let looked = |times: usize| move |fake: &crate::fake::Fake| fake.calls().len() > calls_at(times);
    world.until("all were looked at", looked(1)).await;
    let (begun, before) = (std::time::Instant::now(), world.fake.calls().len());
    world.until("all were looked at three times", looked(4)).await;
    let (took, after) = (begun.elapsed(), world.fake.calls());
    let counted = after[before..].iter().filter(|call| !call.ends_with("304")).count();
    assert!(counted <= REPOSITORIES, "{counted} were not conditional");
    let a_round = quick.resync.mul_f64(0.8).as_secs_f64();
    let rounds = (took.as_secs_f64() / a_round).ceil();
    let an_hour = (after.len() - before) as f64 / rounds * (3_600.0 / usual.resync.mul_f64(0.8).as_secs_f64());
    assert!(an_hour <= 2_500.0 + 1.0, "{an_hour} calls an hour");
    assert!(after[before..].iter().all(|call| call.starts_with("GET")));
    world.stop().await;
}

fn calls_at(times: usize) -> usize {
    1 + 2 * REPOSITORIES + times * REPOSITORIES
}

impl World {
    async fn apply_owned(&self, name: String, fields: serde_json::Value) {
        self.apply(&name, fields).await;
    }
}

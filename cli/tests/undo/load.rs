//! A restore of a large namespace while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{World, map};

const OBJECTS: usize = 500;
/// The project's bound for this restore.
const RESTORED_WITHIN: Duration = Duration::from_secs(30);
const WRITES_PER_SECOND: u32 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_of_500_objects_is_restored_under_writes_and_no_later_edit_is_lost() {
    // On a cluster of its own: under load, a commit has the writes of several scenarios, so one could revert those of another.
    let world = Arc::new(World::alone("load").await);
    let numbers = futures::stream::iter(0..OBJECTS);
    futures::StreamExt::for_each_concurrent(numbers, 16, async |number| {
        world.create("configmaps", map(&format!("m{number}"), "4")).await;
    })
    .await;
    let then = world.revision().await;
    let numbers = futures::stream::iter(0..OBJECTS);
    futures::StreamExt::for_each_concurrent(numbers, 16, async |number| {
        let name = format!("configmaps/m{number}");
        if number % 5 == 0 {
            world.delete(&name).await;
        } else {
            world.patch(&name, json!({"data": {"tea": "5"}})).await;
        }
    })
    .await;
    // Another client edits the same objects: a field of its own in those that are not deleted.
    let (is_over, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let client = tokio::spawn({
        let (world, is_over, writes) = (Arc::clone(&world), Arc::clone(&is_over), Arc::clone(&writes));
        async move {
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / WRITES_PER_SECOND);
            let mut last = vec![None; OBJECTS];
            for number in (0..OBJECTS).filter(|number| number % 5 != 0).cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                ticks.tick().await;
                let salt = writes.fetch_add(1, Ordering::Relaxed).to_string();
                world.patch(&format!("configmaps/m{number}"), json!({"data": {"salt": salt}})).await;
                last[number] = Some(salt);
            }
            last
        }
    });
    while writes.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let before = (Instant::now(), writes.load(Ordering::Relaxed));
    let ran = world.run(&format!("restore -n NS --to={then} --json")).await.ok();
    let (took, written) = (before.0.elapsed(), writes.load(Ordering::Relaxed) - before.1);
    is_over.store(true, Ordering::Relaxed);
    let last = client.await.expect("the writer does not panic");
    println!("restored {OBJECTS} objects in {took:?} under {written} writes");
    assert!(took < RESTORED_WITHIN, "{took:?}");
    let (json, mut kept) = (ran.json(), 0);
    let steps = json["steps"].as_array().expect("the steps");
    for (number, salt) in last.iter().enumerate() {
        let step = steps.iter().find(|step| step["object"]["name"] == format!("m{number}")).expect("a step for each");
        assert!(step["error"].is_null(), "{step}");
        let now = world.get(&format!("configmaps/m{number}")).await;
        assert_eq!(now["data"]["tea"], "4", "m{number}: {step}");
        // The plan removes an entry that it knew; any that was written later stays.
        let fields = step["fields"].as_array().expect("the fields");
        let planned = fields.iter().find(|field| field["path"] == "data.salt").map(|field| &field["from"]);
        let Some(salt) = salt else { continue };
        if planned.is_some_and(|planned| *planned == format!("\"{salt}\"")) {
            assert!(now["data"]["salt"].is_null(), "m{number}: {now}");
        } else {
            assert_eq!(now["data"]["salt"], salt.as_str(), "m{number}: {step}");
            kept += 1;
        }
    }
    assert!(kept > 0, "edits were made after the plan");
}

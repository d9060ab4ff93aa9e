//! Merges of two branches, compared with the same requests on one kube-apiserver, which must also accept the results.
//!
//! Environment:
//! - `TRISHANKU_MERGE_CASES`: number of cases.
//! - `TRISHANKU_MERGE_OBJECTS`: number of objects, generated from the `OpenAPI`, to merge.
//! - `TRISHANKU_MERGE_SEED`: seed of the first case; the following seeds count up. A failed case prints its seed.
//! - `TRISHANKU_MERGE_VALUES`: if set, a failed case also prints the stored values.

#![expect(clippy::similar_names, reason = "a patch is sent to a path")]

mod case;
mod compare;
mod documented;
mod edits;
mod keyed;
mod kinds;
mod openapi;
mod oracle;
mod property;
mod report;
mod requests;
mod world;

use std::collections::BTreeMap;
use std::time::Instant;

use self::oracle::Oracle;
use self::property::Property;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_merge_is_what_some_order_of_both_sides_requests_gives() {
    let (cases, seed) = (number("TRISHANKU_MERGE_CASES", 1000) as usize, number("TRISHANKU_MERGE_SEED", 1));
    let oracle = Oracle::prepare().await;
    let started = Instant::now();
    let totals = oracle.run(seed, cases).await;
    println!("{cases} cases from seed {seed} in {:.1?}", started.elapsed());
    for (what, count) in totals.counts.iter().filter(|(what, _)| !what.ends_with(')')) {
        println!("{count:>8}  {what}");
    }
    for (what, count) in totals.counts.iter().filter(|(what, _)| what.ends_with(')')) {
        println!("{count:>8}  {what}");
    }
    let mut classes: BTreeMap<&str, Vec<&report::Fault>> = BTreeMap::new();
    totals.faults.iter().for_each(|fault| classes.entry(&fault.signature).or_default().push(fault));
    let mut classes: Vec<_> = classes.into_iter().collect();
    classes.sort_by_key(|(_, faults)| std::cmp::Reverse(faults.len()));
    for (signature, faults) in &classes {
        println!("{:>5} x {signature} (seed {})", faults.len(), faults[0].seed);
    }
    for (_, faults) in classes.iter().take(40) {
        let shortest = faults.iter().min_by_key(|fault| fault.report.len()).expect("a class has a fault");
        println!("\n{}", shortest.report);
    }
    let of = |what: &str| totals.counts.get(what).copied().unwrap_or_default();
    let in_order: usize = ["A, then B", "B, then A", "interleaved"].into_iter().map(of).sum();
    assert!(cases < 100 || in_order > cases / 2, "only {in_order} of {cases} merges matched an order of requests");
    assert!(totals.faults.is_empty(), "{} of {cases} merges match no order of requests", totals.faults.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_apiserver_accepts_what_a_merge_makes_of_any_kind() {
    let (cases, seed) = (number("TRISHANKU_MERGE_OBJECTS", 2000) as usize, number("TRISHANKU_MERGE_SEED", 1));
    let property = Property::prepare().await;
    let started = Instant::now();
    let totals = property.run(seed, cases).await;
    println!("{cases} objects from seed {seed} in {:.1?}, of {} kinds", started.elapsed(), totals.kinds.len());
    for (kind, (tried, merged)) in &totals.kinds {
        println!("{tried:>8}  {kind}, {merged} of them merged");
    }
    let mut classes: BTreeMap<(&str, &str), Vec<&property::Rejected>> = BTreeMap::new();
    for rejected in &totals.rejected {
        classes.entry((&rejected.kind, &rejected.reason)).or_default().push(rejected);
    }
    for ((kind, reason), rejected) in &classes {
        println!("{:>5} x {kind}: {reason}", rejected.len());
    }
    for rejected in classes.values().take(40) {
        let shortest = rejected.iter().min_by_key(|rejected| rejected.report.len()).expect("a class is not empty");
        println!("\n{}", shortest.report);
    }
    let merged: usize = totals.kinds.values().map(|(_, merged)| *merged).sum();
    assert!(cases < 100 || merged > cases / 3, "only {merged} of {cases} objects were merged");
    let rejected = totals.rejected.len();
    assert!(rejected == 0, "kube-apiserver rejects {rejected} of {cases} merged objects");
}

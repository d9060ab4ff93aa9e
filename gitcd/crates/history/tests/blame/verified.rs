//! A branch that is verified in the middle of a flush: the reference of the data is behind that of the metadata.

use std::time::Duration;

use git2::Repository;

use crate::world::World;

const KEY: &str = "/registry/configmaps/n/a";
const DATA: &str = "refs/heads/b0";

#[test]
fn the_data_may_follow_the_metadata_a_moment_later_but_must_follow() {
    let mut world = World::new(1);
    let first = world.put(0, &[(KEY, Some(b"{}"))]);
    world.flush(0);
    let second = world.put(0, &[(KEY, Some(br#"{"kind":"ConfigMap"}"#))]);
    world.flush(0);
    let path = world.path();
    let set = move |commit| {
        let repository = Repository::open(&path).expect("it exists");
        repository.reference(DATA, commit, true, "").expect("it can be moved");
    };
    set(first);
    let history = world.history(0);
    let moving = set.clone();
    let flush = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        moving(second);
    });
    let verified = history.verify(|_, _| {}).expect("the metadata can be read");
    flush.join().expect("no panic");
    assert_eq!(verified.findings, [""; 0]);

    set(first);
    let verified = world.history(0).verify(|_, _| {}).expect("the metadata can be read");
    assert_eq!(verified.findings.len(), 1, "{verified:?}");
    assert!(verified.findings[0].contains(&format!("{DATA} is at {first}, which does not follow {second}")));
}

//! Reads that are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gitcd_history::blame::{BlameError, Options};
use gitcd_history::find::FindCommitError;
use gitcd_history::when::When;
use gitcd_history::{History, HistoryError};

use crate::world::World;

const KEY: &str = "/registry/configmaps/n/a";
const OTHER: &str = "/registry/configmaps/n/other";
/// How often a read asks before it is stopped.
const ASKED: usize = 20;

/// A read, and its name.
type Read<'r> = (&'r str, &'r dyn Fn(&History) -> Result<(), HistoryError>);

/// Returns a history whose reads stop after some commits, and how often they have asked.
fn stopped(world: &World) -> (History, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let history = world.history(0).stopped_by(move || counter.fetch_add(1, Ordering::Relaxed) >= ASKED);
    (history, asked)
}

#[test]
fn a_read_that_is_stopped_ends_within_a_commit_and_says_so() {
    let mut world = World::new(1);
    let first = world.put(0, &[(KEY, Some(br#"{"kind":"ConfigMap","data":{"x":"1"}}"#))]);
    world.flush(0);
    for number in 0..100 {
        world.put(0, &[(OTHER, Some(format!(r#"{{"data":{{"x":"{number}"}}}}"#).as_bytes()))]);
        world.flush(0);
    }
    let key = KEY.as_bytes();
    let reads: [Read<'_>; 6] = [
        ("commits", &|history| history.commits(1000, None).map(drop)),
        ("commits_after", &|history| history.commits_after(None).map(drop)),
        ("versions", &|history| history.versions(key, 10, None).map(drop)),
        ("decisions", &|history| history.decisions(key, 10, None).map(drop)),
        ("find_commit", &|history| match history.find_commit(&first.to_string()) {
            Err(FindCommitError::History(error)) => Err(error),
            other => panic!("{other:?}"),
        }),
        ("blame", &|history| {
            let tip = history.at(When::Now)?;
            match history.blame(&tip, key, &Options::default()) {
                Err(BlameError::History(error)) => Err(error),
                other => panic!("{other:?}"),
            }
        }),
    ];
    for (name, read) in reads {
        let (history, asked) = stopped(&world);
        let result = read(&history);
        assert!(matches!(result, Err(HistoryError::Stopped)), "{name}: {result:?}");
        assert_eq!(asked.load(Ordering::Relaxed), ASKED + 1, "{name} ends at once");
    }
    assert_eq!(world.history(0).versions(key, 10, None).expect("it is not stopped").len(), 1);
}

//! Processes are stopped together with their children.

mod scripts;

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc;
use trishanku::plane::components::{Component, Probe};
use trishanku::plane::supervisor::{Stop, Supervisor};
use trishanku::plane::{Identity, State, leftovers};

use self::scripts::{PATIENCE, script};

fn component(folder: &Path, prepare: Option<&str>, text: &str) -> Component {
    let prepare = prepare.iter().map(|text| script(folder, text)).collect();
    let probe = Probe::Run(script(folder, "test -s child"));
    Component { prepare, probe, ..scripts::component(folder, "it", text, &[]) }
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let since = Instant::now();
    while !look() {
        assert!(since.elapsed() < PATIENCE, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process whose id is in a file.
fn written(path: &Path) -> Option<Identity> {
    let id = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Identity::of(id).expect("/proc is readable")
}

/// A wrapper is stopped first: its child must not exit before it. Then the child is stopped, too.
#[tokio::test]
async fn a_wrapper_is_stopped_before_its_child_which_does_not_outlive_it() {
    let dir = TempDir::new().expect("the temp folder is writable");
    let folder = dir.path();
    let wrapper = "sh -c 'trap \"echo child >> stops; exit 0\" TERM; while :; do sleep 0.05; done' & echo $! > child
        trap 'sleep 0.3; echo wrapper >> stops; exit 0' TERM; wait";
    let file = folder.join("state.json");
    let mut notify = |_| {};
    let components = vec![component(folder, None, wrapper)];
    let supervisor = Supervisor::new(components, State::default(), file, &mut notify).expect("order is valid");
    let (stop, mut stops) = mpsc::channel(1);
    let mut child = None;
    let story = async {
        until("the child", || {
            child = written(&folder.join("child"));
            child.is_some()
        })
        .await;
        stop.send(Stop).await.expect("the supervisor runs");
    };
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, PATIENCE), story);
    outcome.expect("no component failed");
    assert!(!child.expect("the child has started").is_alive(), "the child was left behind");
    assert_eq!(std::fs::read_to_string(folder.join("stops")).expect("both handled SIGTERM"), "wrapper\nchild\n");
}

#[tokio::test]
async fn what_is_prepared_is_known_to_whoever_ends_it_without_a_supervisor() {
    let dir = TempDir::new().expect("the temp folder is writable");
    let (folder, file) = (dir.path(), dir.path().join("state.json"));
    let prepare = "sh -c 'while :; do sleep 0.05; done' & echo $! > child; wait";
    let mut notify = |_| {};
    let components = vec![component(folder, Some(prepare), "exit 0")];
    let supervisor = Supervisor::new(components, State::default(), file.clone(), &mut notify).expect("order is valid");
    let (stop, mut stops) = mpsc::channel(1);
    let story = async {
        let mut child = None;
        until("the preparation", || {
            child = written(&folder.join("child"));
            child.is_some() && State::load(&file).is_ok_and(|state| state.components[0].process.is_some())
        })
        .await;
        // As `down` does for a supervisor that was killed.
        let state = State::load(&file).expect("the state was saved");
        let ended = tokio::task::spawn_blocking(move || leftovers::end(&state)).await.expect("no panic");
        assert_eq!(ended.expect("they can be stopped").len(), 1);
        let child = child.expect("the child has started");
        until("the end of its child", || !child.is_alive()).await;
        stop.send(Stop).await.expect("the supervisor runs");
    };
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, PATIENCE), story);
    outcome.expect("no component failed");
}

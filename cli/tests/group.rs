//! What processes leave behind is ended with them.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc;
use trishanku::plane::components::{Component, Invocation, Probe};
use trishanku::plane::supervisor::{Stop, Supervisor};
use trishanku::plane::{Identity, State, leftovers};

const PATIENCE: Duration = Duration::from_secs(30);

fn script(folder: &Path, text: &str) -> Invocation {
    let args = vec!["-c".into(), text.into()];
    Invocation { program: "/bin/sh".into(), args, folder: Some(folder.into()), ..Invocation::default() }
}

fn component(folder: &Path, prepare: Option<&str>, text: &str) -> Component {
    Component {
        name: "it".to_owned(),
        port: None,
        after: Vec::new(),
        prepare: prepare.iter().map(|text| script(folder, text)).collect(),
        prepare_again: true,
        is_essential: true,
        takes_turns: false,
        run: script(folder, text),
        probe: Probe::Run(script(folder, "test -s child")),
        alive: None,
        grace: PATIENCE,
        log: folder.join("log"),
    }
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let since = Instant::now();
    while !look() {
        assert!(since.elapsed() < PATIENCE, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The process whose id is in a file.
fn written(path: &Path) -> Option<Identity> {
    let id = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    Identity::of(id).expect("there is a /proc")
}

/// A wrapper is told first: its child must not end before it. Then the child is told, too.
#[tokio::test]
async fn a_wrapper_is_told_before_its_child_which_does_not_outlive_it() {
    let dir = TempDir::new().expect("there is room for a folder");
    let folder = dir.path();
    let wrapper = "sh -c 'trap \"echo child >> told; exit 0\" TERM; while :; do sleep 0.05; done' & echo $! > child
        trap 'sleep 0.3; echo wrapper >> told; exit 0' TERM; wait";
    let file = folder.join("state.json");
    let mut tell = |_| {};
    let components = vec![component(folder, None, wrapper)];
    let supervisor = Supervisor::new(components, State::default(), file, &mut tell).expect("it is in order");
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
    outcome.expect("nothing failed");
    assert!(!child.expect("it was there").is_alive(), "the child was left behind");
    assert_eq!(std::fs::read_to_string(folder.join("told")).expect("they were told"), "wrapper\nchild\n");
}

#[tokio::test]
async fn what_is_prepared_is_known_to_whoever_ends_it_without_a_supervisor() {
    let dir = TempDir::new().expect("there is room for a folder");
    let (folder, file) = (dir.path(), dir.path().join("state.json"));
    let prepare = "sh -c 'while :; do sleep 0.05; done' & echo $! > child; wait";
    let mut tell = |_| {};
    let components = vec![component(folder, Some(prepare), "exit 0")];
    let supervisor = Supervisor::new(components, State::default(), file.clone(), &mut tell).expect("it is in order");
    let (stop, mut stops) = mpsc::channel(1);
    let story = async {
        let mut child = None;
        until("the preparation", || {
            child = written(&folder.join("child"));
            child.is_some() && State::load(&file).is_ok_and(|state| state.components[0].process.is_some())
        })
        .await;
        // As `down` does it for a supervisor that was killed.
        let state = State::load(&file).expect("it was written");
        let ended = tokio::task::spawn_blocking(move || leftovers::end(&state)).await.expect("no panic");
        assert_eq!(ended.expect("they can be ended").len(), 1);
        let child = child.expect("it was there");
        until("the end of its child", || !child.is_alive()).await;
        stop.send(Stop).await.expect("the supervisor runs");
    };
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, PATIENCE), story);
    outcome.expect("nothing failed");
}

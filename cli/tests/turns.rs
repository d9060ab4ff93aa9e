//! The supervisor and servers that take turns. The programs are scripts; `e2e/tests/processes/turns/` uses real ones.

mod scripts;

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use trishanku::plane::State;
use trishanku::plane::components::{Component, Probe};
use trishanku::plane::state::{Condition, Phase};
use trishanku::plane::supervisor::{Notice, Stop, Supervisor};

use self::scripts::{PATIENCE, script};

/// It is its turn while the file `turn` exists, and it exits after that.
const TURNS: &str = "while [ ! -e turn ]; do sleep 0.05; done; touch serving
    while [ -e turn ]; do sleep 0.05; done; rm serving; exit 1";

fn component(folder: &Path, name: &str, text: &str, after: &[&str]) -> Component {
    let usual = scripts::component(folder, name, text, after);
    if name != "a/gitcd" {
        return usual;
    }
    Component { takes_turns: true, probe: Probe::Run(script(folder, "test -e serving")), ..usual }
}

async fn wait_for(notices: &mut UnboundedReceiver<Notice>, what: &str, is_it: impl Fn(&Notice) -> bool) {
    let wait = async { while !is_it(&notices.recv().await.expect("the supervisor runs")) {} };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("no notice: {what}"));
}

async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let since = Instant::now();
    while !look() {
        assert!(since.elapsed() < PATIENCE, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn ready(notices: &mut UnboundedReceiver<Notice>, name: &str) {
    wait_for(notices, name, |notice| matches!(notice, Notice::Ready { component, .. } if component == name)).await;
}

#[tokio::test]
async fn what_comes_after_a_server_runs_only_while_it_is_its_turn() {
    let dir = TempDir::new().expect("the temp folder is writable");
    let (folder, turn) = (dir.path(), dir.path().join("turn"));
    let started = || std::fs::read_to_string(folder.join("started")).unwrap_or_default().lines().count();
    let app = "echo it >> started; exec sleep 600";
    // Stops more slowly than the components after it.
    let slow = "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.05; done";
    let components = vec![
        component(folder, "a/gitcd", TURNS, &[]),
        component(folder, "a/slow", slow, &["a/gitcd"]),
        component(folder, "a/app", app, &["a/slow"]),
        // Of another heaven that merely starts later: it is not affected.
        component(folder, "b/gitcd", "exec sleep 600", &["a/gitcd"]),
    ];
    let (sender, mut notices) = mpsc::unbounded_channel();
    let mut notify = move |notice| drop(sender.send(notice));
    let file = folder.join("state.json");
    let supervisor = Supervisor::new(components, State::default(), file.clone(), &mut notify).expect("order is valid");
    let (stop, mut stops) = mpsc::channel(1);
    let story = async {
        wait_for(&mut notices, "it stands by", |notice| matches!(notice, Notice::StandingBy { .. })).await;
        let state = State::load(&file).expect("the state was saved");
        assert_eq!((state.phase, started()), (Phase::Ready, 0));
        assert!(state.components[..3].iter().all(|component| component.condition == Condition::Waiting));

        std::fs::write(&turn, "").expect("the folder is writable");
        ready(&mut notices, "a/gitcd").await;
        ready(&mut notices, "b/gitcd").await;
        until("the first start", || started() == 1).await;

        std::fs::remove_file(&turn).expect("it exists");
        wait_for(&mut notices, "the end of the turn", |notice| matches!(notice, Notice::Restarting(..))).await;
        until("all to wait", || {
            let state = State::load(&file).expect("the state was saved");
            let [store, slow, app, other] = &state.components[..] else { panic!("{state:?}") };
            assert_eq!(other.condition, Condition::Ready);
            let all_wait = [store, slow, app].iter().all(|component| component.condition == Condition::Waiting);
            all_wait && slow.process.is_none() && app.process.is_none() && store.process.is_some()
        })
        .await;

        std::fs::write(&turn, "").expect("the folder is writable");
        ready(&mut notices, "a/app").await;
        until("the second start", || started() == 2).await;
        stop.send(Stop).await.expect("the supervisor runs");
    };
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, Duration::from_millis(500)), story);
    outcome.expect("no component failed");
    let state = State::load(&file).expect("the state was saved");
    assert!(state.components.iter().all(|component| component.condition == Condition::Stopped), "{state:?}");
}

/// Like a kube-apiserver on a store that shows what another server writes.
#[tokio::test]
async fn what_starts_at_a_standby_is_warm_when_its_turn_comes_and_holds_up_the_rest_until_then() {
    let dir = TempDir::new().expect("the temp folder is writable");
    let (folder, turn) = (dir.path(), dir.path().join("turn"));
    let started = |what: &str| std::fs::read_to_string(folder.join(what)).unwrap_or_default().lines().count();
    // It exits when its turn is over, and restarts as a standby.
    let store = "touch serving; while [ ! -e turn ]; do sleep 0.05; done
        while [ -e turn ]; do sleep 0.05; done; rm serving; exit 1";
    let mut warm = component(folder, "a/warm", "echo it >> warm; exec sleep 600", &["a/gitcd"]);
    (warm.takes_turns, warm.probe) = (true, Probe::Run(script(folder, "test -e turn")));
    let components = vec![
        component(folder, "a/gitcd", store, &[]),
        warm,
        component(folder, "a/app", "echo it >> app; exec sleep 600", &["a/warm"]),
    ];
    let (sender, mut notices) = mpsc::unbounded_channel();
    let mut notify = move |notice| drop(sender.send(notice));
    let file = folder.join("state.json");
    let supervisor = Supervisor::new(components, State::default(), file.clone(), &mut notify).expect("order is valid");
    let (stop, mut stops) = mpsc::channel(1);
    let is_warm = || {
        let state = State::load(&file).expect("the state was saved");
        let [store, warm, app] = &state.components[..] else { panic!("{state:?}") };
        let conditions = [store.condition, warm.condition, app.condition];
        conditions == [Condition::Ready, Condition::Waiting, Condition::Waiting]
            && warm.process.is_some()
            && app.process.is_none()
    };
    let events = async {
        let waits = |notice: &Notice| matches!(notice, Notice::StandingBy { component } if component == "a/warm");
        wait_for(&mut notices, "it stands by", waits).await;
        until("it to be warm", || is_warm() && started("warm") == 1).await;
        assert_eq!(started("app"), 0);
        std::fs::write(&turn, "").expect("the folder is writable");
        ready(&mut notices, "a/app").await;
        until("the rest", || started("app") == 1).await;
        assert_eq!(started("warm"), 1, "it was already running");

        // When it exits by itself, nothing else stops.
        let warm = || State::load(&file).expect("the state was saved").components[1].process.clone();
        let process = warm().expect("it runs");
        process.signal(rustix::process::Signal::KILL).expect("the process runs");
        until("it to be back", || started("warm") == 2).await;
        ready(&mut notices, "a/warm").await;
        assert_eq!(started("app"), 1);

        std::fs::remove_file(&turn).expect("it exists");
        until("a warm standby again", || is_warm() && started("warm") == 3).await;
        assert_eq!(started("app"), 1);
        std::fs::write(&turn, "").expect("the folder is writable");
        ready(&mut notices, "a/app").await;
        until("the rest", || started("app") == 2).await;
        stop.send(Stop).await.expect("the supervisor runs");
    };
    // Long enough for the store to become ready on a busy machine; otherwise the store would stand by.
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, Duration::from_secs(5)), events);
    outcome.expect("no component failed");
}

//! A component that exits at once: the start does not wait for it, and the control plane is degraded.

mod scripts;

use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::sync::mpsc;
use trishanku::plane::components::{Component, Probe};
use trishanku::plane::supervisor::{Notice, Stop, Supervisor};
use trishanku::plane::{Home, Identity, State};
use trishanku::status::{self, Health};

fn component(home: &Home, name: &str, text: &str, after: &[&str]) -> Component {
    let probe = Probe::Running(Duration::from_millis(500));
    let script = scripts::component(home.dir(), name, text, after);
    Component { is_essential: false, probe, log: home.log(name), ..script }
}

#[tokio::test]
async fn a_controller_that_exits_at_once_makes_the_control_plane_degraded_at_once() {
    let dir = TempDir::new().expect("the temp folder is writable");
    let home = Home::at(&dir.path().join("plane"));
    home.create().expect("the temp folder is writable");
    let components = vec![
        component(&home, "a/app", "echo no such file: settings.yaml >&2; exit 3", &[]),
        component(&home, "a/beside", "exec sleep 600", &[]),
        component(&home, "a/after", "exec sleep 600", &["a/app"]),
    ];
    let (notify, mut notices) = mpsc::unbounded_channel();
    let mut notify = move |notice| drop(notify.send(notice));
    let state = State { supervisor: Identity::of(std::process::id()).expect("/proc is readable"), ..State::default() };
    let file = home.state_file();
    let supervisor = Supervisor::new(components, state, file, &mut notify).expect("order is valid");
    let (stop, mut stops) = mpsc::channel(1);
    let since = Instant::now();
    let events = async {
        let failure = loop {
            match notices.recv().await.expect("the supervisor runs") {
                Notice::Late(failure) => break failure,
                Notice::AllReady { .. } => panic!("not everything is ready"),
                _ => {}
            }
        };
        assert_eq!(failure.cause, "keeps exiting with code 3 (3 restarts)");
        let said = failure.to_string();
        assert!(said.contains("| no such file: settings.yaml") && said.contains("a.app.log"), "{said}");
        loop {
            match notices.recv().await.expect("the supervisor runs") {
                Notice::Degraded { component, .. } => break assert_eq!(component, "a/app"),
                Notice::AllReady { .. } => panic!("not everything is ready"),
                _ => {}
            }
        }
        // Far more than the restarts take.
        assert!(since.elapsed() < scripts::PATIENCE, "{:?}", since.elapsed());
        let report = status::read(&home).expect("the state was saved");
        assert_eq!(report.health, Health::Degraded);
        let failure = report.components[0].failure.clone().expect("it fails");
        assert!(failure.cause.starts_with("keeps exiting with code 3 ("), "{failure}");
        assert_eq!(failure.tail.last().map(String::as_str), Some("no such file: settings.yaml"));
        assert!(report.components[1].failure.is_none() && report.components[2].pid.is_some(), "{report:?}");
        stop.send(Stop).await.expect("the supervisor runs");
    };
    let (outcome, ()) = tokio::join!(supervisor.run(&mut stops, Duration::from_mins(10)), events);
    outcome.expect("only a component that is not essential failed");
}

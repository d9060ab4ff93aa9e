//! The two contestants that are built here, with few objects.

use std::path::Path;
use std::time::Duration;

use gitcd_bench::machine::Machine;
use trishanku_framework_bench::contestant::{Kind, Programs};
use trishanku_framework_bench::report::Report;
use trishanku_framework_bench::run::Side;
use trishanku_framework_bench::turn::{self, Plan, Turn};

const OBJECTS: usize = 50;

const PLAN: Plan =
    Plan { objects: OBJECTS, concurrency: 10, rest: Duration::from_secs(1), resync: Duration::from_secs(25) };

async fn turn(kind: Kind) -> Turn {
    let folder = Path::new(env!("CARGO_BIN_EXE_pairs-framework")).parent().expect("the program has a folder");
    let program = Programs::within(folder).of(kind).expect("cargo has built it");
    let turn = turn::take(kind, &program, PLAN).await.expect("the turn succeeds");
    for (what, stretch) in [("making", &turn.making), ("restart", &turn.restart), ("resync", &turn.resync)] {
        assert!(stretch.seconds > 0.0 && stretch.reconciles >= OBJECTS as u64, "{kind} {what}: {stretch:?}");
        assert_eq!((stretch.failed, stretch.requests.refused), (0, 0), "{kind} {what}: {stretch:?}");
    }
    for stretch in [&turn.restart, &turn.resync] {
        assert_eq!(stretch.requests.of_objects(), 0, "{kind}: {stretch:?}");
    }
    for (stretch, watches) in [(&turn.making, 3), (&turn.restart, 3), (&turn.resync, 0)] {
        assert_eq!(stretch.requests.watches, watches, "{kind}: {stretch:?}");
    }
    turn
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_made_ready_and_looking_again_writes_nothing() {
    let (framework, bare) = tokio::join!(turn(Kind::Framework), turn(Kind::KubeRuntime));
    let (made, objects) = (framework.making.requests, OBJECTS as u64);
    assert_eq!((made.applies, made.statuses, made.other_writes, made.gets), (2 * objects, objects, 0, 0));

    let sides = [(Kind::Framework, framework), (Kind::KubeRuntime, bare)];
    let sides = sides.map(|(kind, turn)| Side { kind, turns: vec![turn] }).into();
    let (command, date) = ("as in a test".to_owned(), String::new());
    let report = Report { command, date, machine: Machine::look(Path::new("/")), plan: PLAN, sides };
    let section = report.section();
    for line in ["| framework  ", "| kube-runtime  ", "| time to all ready  ", "with 50 objects"] {
        assert!(section.contains(line), "{line} is not in\n{section}");
    }
}

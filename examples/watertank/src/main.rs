//! A controller that keeps the water in tanks at the desired level. `docs/write-a-controller.md` builds it step by step.

mod control;
mod plan;
mod tank;

use std::process::ExitCode;

use trishanku_framework::crd::Definitions;
use trishanku_framework::{Controller, Program};

#[tokio::main]
async fn main() -> ExitCode {
    let tanks = Controller::with_status("watertank", |kinds| control::TankReconciler { valves: kinds.owned() });
    let program = Program::new("watertank").definitions(Definitions::of::<tank::Tank>());
    program.run(async |manager| Ok(manager.controller(tanks))).await
}

//! A controller that keeps the water in tanks at the desired level. `docs/write-a-controller.md` builds it step by step.

mod control;
mod plan;
mod tank;

use std::process::ExitCode;

use trishanku_framework::{Controller, Program};

#[tokio::main]
async fn main() -> ExitCode {
    let tanks = Controller::with_status("watertank", |kinds| control::TankReconciler { valves: kinds.owned() });
    Program::new("watertank").crd::<tank::Tank>().controller(tanks).run().await
}

//! A controller of heavens for Jobs. `docs/write-a-heaven.md` explains it.

mod control;
mod kind;
mod plan;

use std::process::ExitCode;

use trishanku_framework::crd::Definitions;
use trishanku_framework::{Controller, Program};

#[tokio::main]
async fn main() -> ExitCode {
    let controller = Controller::with_status("job-heaven", control::JobHeavenReconciler::new);
    let program = Program::new("job-heaven").definitions(Definitions::of::<kind::JobHeaven>());
    program.run(async |manager| Ok(manager.controller(controller))).await
}

//! Controllers of heavens for `StatefulSet` objects, `DaemonSet` objects and Jobs. `docs/write-a-heaven.md` explains them.

mod daemon_set;
mod job;
mod stateful_set;

use std::process::ExitCode;

use trishanku_framework::Program;
use trishanku_framework::crd::Definitions;
use trishanku_heaven::{Settings, heavens};

use crate::daemon_set::DaemonSetHeaven;
use crate::job::JobHeaven;
use crate::stateful_set::StatefulSetHeaven;

#[tokio::main]
async fn main() -> ExitCode {
    let definitions = Definitions::of::<StatefulSetHeaven>().and::<DaemonSetHeaven>().and::<JobHeaven>();
    let program = Program::new("workload-heavens").definitions(definitions);
    let run = program.run(async |manager| {
        Ok(manager
            .controller(heavens::<StatefulSetHeaven>("stateful-set-heaven", Settings::default()))
            .controller(heavens::<DaemonSetHeaven>("daemon-set-heaven", Settings::default()))
            .controller(heavens::<JobHeaven>("job-heaven", Settings::default())))
    });
    run.await
}

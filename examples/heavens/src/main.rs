//! Controllers of heavens for `StatefulSet` objects, `DaemonSet` objects and Jobs. `docs/write-a-heaven.md` explains them.

mod daemon_set;
mod job;
mod stateful_set;

use std::process::ExitCode;

use trishanku_framework::Program;
use trishanku_heaven::{Settings, heavens};

use crate::daemon_set::DaemonSetHeaven;
use crate::job::JobHeaven;
use crate::stateful_set::StatefulSetHeaven;

#[tokio::main]
async fn main() -> ExitCode {
    Program::new("workload-heavens")
        .crd::<StatefulSetHeaven>()
        .controller(heavens::<StatefulSetHeaven>("stateful-set-heaven", Settings::default()))
        .crd::<DaemonSetHeaven>()
        .controller(heavens::<DaemonSetHeaven>("daemon-set-heaven", Settings::default()))
        .crd::<JobHeaven>()
        .controller(heavens::<JobHeaven>("job-heaven", Settings::default()))
        .run()
        .await
}

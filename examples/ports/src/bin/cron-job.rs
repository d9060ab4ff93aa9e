//! `cron-job` runs the controller and its webhooks; `cron-job crd` prints its CRD.

use std::process::ExitCode;

use ports::cron_job::{CronJob, NAME, controller, hooks};
use trishanku_framework::Program;
use trishanku_framework::webhook::Hook;

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new(NAME).crd::<CronJob>().controller(controller());
    program.webhooks("cron-job-webhooks", |webhooks| hooks(webhooks, Hook::named)).run().await
}

//! `cron-job` runs the controller and its webhooks; `cron-job crd` prints its CRD.

use std::process::ExitCode;

use k8s_openapi::jiff::Timestamp;
use ports::cron_job::{CronJob, NAME, controller, hooks};
use trishanku_framework::crd::Definitions;
use trishanku_framework::webhook::{Hook, WebhookEndpoint, Webhooks};
use trishanku_framework::{Manager, Program};

#[tokio::main]
async fn main() -> ExitCode {
    let program = Program::new(NAME).definitions(Definitions::of::<CronJob>());
    let add = async |manager: Manager| {
        let namespace = std::env::var("POD_NAMESPACE").unwrap_or_else(|_| "default".to_owned());
        let endpoint = WebhookEndpoint::service(namespace, "cron-job-webhooks");
        let webhooks = Webhooks::bind(NAME, &":9443".parse()?, endpoint).await?;
        Ok(manager.webhooks(hooks(webhooks, Hook::named)).controller(controller(Timestamp::now)))
    };
    program.run(add).await
}

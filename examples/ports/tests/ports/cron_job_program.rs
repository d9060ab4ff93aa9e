//! The program `cron-job` with its webhooks.

use std::process::{Child, Command, Stdio};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{ListParams, PostParams};
use ports::cron_job::CronJob;
use serde_json::json;
use trishanku_framework::crd::Definitions;
use trishanku_testkit::{TestCluster, wait};

use crate::support::until_condition;

const PROGRAM: &str = env!("CARGO_BIN_EXE_cron-job");

/// A running program; killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The program for one namespace, which also has its lease. Without probes and metrics, it binds no other port.
fn program(cluster: &TestCluster, namespace: &str, webhooks: &str) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("KUBECONFIG", cluster.kubeconfig(None)).env("POD_NAMESPACE", namespace);
    command.env("WATCH_NAMESPACES", namespace).env("PROBES", "0").env("METRICS", "0");
    command.env("WEBHOOKS", webhooks).env("WEBHOOKS_HOST", "127.0.0.1").stdin(Stdio::null());
    command
}

fn cron_job(name: &str, schedule: &str) -> CronJob {
    let made = json!({"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {}}});
    serde_json::from_value(made).unwrap()
}

#[tokio::test]
async fn the_program_serves_its_webhooks_and_without_them_the_controller_still_runs() {
    // Its hooks are for all namespaces, in which other tests would be refused.
    let cluster = TestCluster::start().await.unwrap();
    let client = cluster.client();
    Definitions::of::<CronJob>().apply(&client, "test").await.unwrap();

    let alone = cluster.namespace("alone").await;
    let running = Program(program(&cluster, &alone, "0").spawn().unwrap());
    let cron_jobs: Api<CronJob> = Api::namespaced(client.clone(), &alone);
    cron_jobs.create(&PostParams::default(), &cron_job("a", "noon")).await.unwrap();
    until_condition(&cron_jobs, "a", "Stalled", "True", "InvalidSchedule").await;
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    assert!(hooks.list(&ListParams::default()).await.unwrap().items.is_empty());
    drop(running);

    let hooked = cluster.namespace("hooked").await;
    let _running = Program(program(&cluster, &hooked, "127.0.0.1:0").spawn().unwrap());
    let cron_jobs: Api<CronJob> = Api::namespaced(client, &hooked);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let asked = wait::until("the hook is asked", async || match cron_jobs.create(&dry, &cron_job("a", "noon")).await {
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(status),
        other => Err(format!("{other:?}")),
    });
    let refused = asked.await.unwrap();
    assert!(refused.message.contains("spec.schedule: cannot parse the schedule \"noon\""), "{refused:?}");
}

#[tokio::test]
async fn an_address_that_is_none_ends_the_program_with_the_name_of_its_variable() {
    let cluster = TestCluster::shared().await;
    let output = program(cluster, "default", "9443").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(r#"cron-job: WEBHOOKS: "9443" is not an address: use IP:PORT"#), "{said}");
}

#[test]
fn only_a_program_with_webhooks_has_their_variables() {
    let usage = |program: &str| {
        let output = Command::new(program).arg("--help").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(usage(PROGRAM).contains("WEBHOOKS, WEBHOOKS_HOST"));
    assert!(!usage(env!("CARGO_BIN_EXE_hello-world")).contains("WEBHOOKS"));
}

//! The webhooks of cron jobs.

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use ports::cron_job::{ConcurrencyPolicy, CronJob, CronJobSpec, hooks, validate, with_defaults};
use serde_json::json;
use trishanku_framework::serve::Address;
use trishanku_framework::webhook::{Hook, WebhookEndpoint, Webhooks};
use trishanku_testkit::wait;

use crate::support::{cluster, manager, run};

fn cron_job(name: &str, schedule: &str) -> CronJob {
    let made = json!({"metadata": {"name": name}, "spec": {"schedule": schedule, "jobTemplate": {"unknown": "kept"}}});
    serde_json::from_value(made).unwrap()
}

#[test]
fn defaults_replace_nothing_that_is_set() {
    let set = CronJobSpec {
        suspend: Some(true),
        successful_jobs_history_limit: Some(7),
        failed_jobs_history_limit: Some(0),
        ..CronJobSpec::default()
    };
    let set = with_defaults(set);
    let values =
        |spec: &CronJobSpec| (spec.suspend, spec.successful_jobs_history_limit, spec.failed_jobs_history_limit);
    assert_eq!(values(&set), (Some(true), Some(7), Some(0)));
    assert_eq!(values(&with_defaults(CronJobSpec::default())), (Some(false), Some(3), Some(1)));
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let wrong = validate(&"a".repeat(53), &cron_job("", "at noon").spec).unwrap_err();
    assert!(wrong.contains("metadata.name") && wrong.contains("spec.schedule"), "{wrong}");
    assert_eq!(validate(&"a".repeat(52), &cron_job("", "0 * * * *").spec), Ok(()));
}

#[tokio::test]
async fn objects_get_defaults_and_invalid_ones_are_refused() {
    let (cluster, namespace) = cluster::<CronJob>("admission").await;
    let local: Address = "127.0.0.1:0".parse().unwrap();
    let webhooks =
        Webhooks::bind("cron-job", &local, WebhookEndpoint::host(&*namespace, "127.0.0.1", 0)).await.unwrap();
    let port = webhooks.address().unwrap().port();
    let webhooks = webhooks.endpoint(WebhookEndpoint::host(&*namespace, "127.0.0.1", port));
    // Other tests use the same cluster.
    let named = |name: &str| Hook::named(name).namespaces([("kubernetes.io/metadata.name", &*namespace)]);
    let running = run(manager(cluster, &namespace).webhooks(hooks(webhooks, named)));

    let cron_jobs: Api<CronJob> = Api::namespaced(cluster.client(), &namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let refused =
        wait::until("the hook is asked", async || match cron_jobs.create(&dry, &cron_job("a", "noon")).await {
            Err(kube::Error::Api(status)) if status.code == 422 => Ok(status),
            other => Err(format!("{other:?}")),
        });
    let refused = refused.await.unwrap();
    assert!(refused.message.contains("spec.schedule: cannot parse the schedule \"noon\""), "{refused:?}");

    let create = async |object: &CronJob| cron_jobs.create(&PostParams::default(), object).await;
    let asked = wait::until("the other hook is asked", async || {
        let made = cron_jobs.create(&dry, &cron_job("a", "@daily")).await.map_err(|error| error.to_string())?;
        made.spec.suspend.map(drop).ok_or("there are no defaults").map_err(ToOwned::to_owned)
    });
    asked.await.unwrap();
    let made = create(&cron_job("a", "@daily")).await.unwrap();
    assert_eq!((made.spec.suspend, made.spec.concurrency_policy), (Some(false), ConcurrencyPolicy::Allow));
    assert_eq!((made.spec.successful_jobs_history_limit, made.spec.failed_jobs_history_limit), (Some(3), Some(1)));
    let long = create(&cron_job(&"a".repeat(53), "@daily")).await.unwrap_err().to_string();
    assert!(long.contains("has more than 52 characters"), "{long}");
    let patch = |spec| Patch::Merge(json!({"spec": spec}));
    let wrong = cron_jobs.patch("a", &PatchParams::default(), &patch(json!({"schedule": "61 * * * *"}))).await;
    assert!(wrong.unwrap_err().to_string().contains("spec.schedule"));
    let unset = json!({"suspend": null, "failedJobsHistoryLimit": 5});
    let changed = cron_jobs.patch("a", &PatchParams::default(), &patch(unset)).await.unwrap();
    assert_eq!((changed.spec.suspend, changed.spec.failed_jobs_history_limit), (Some(false), Some(5)));
    running.stop().await;
}

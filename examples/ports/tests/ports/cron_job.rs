//! The controller of cron jobs, with a clock of the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use futures::channel::mpsc;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use ports::cron_job::{CronJob, SCHEDULED_AT, controller};
use serde_json::{Value, json};
use trishanku_framework::Key;
use trishanku_testkit::wait;

use crate::support::{Running, cluster, manager, run, until_condition};

const HOUR: i64 = 3600;

/// One cron job, `tide`, with its controller.
struct World {
    cron_jobs: Api<CronJob>,
    jobs: Api<Job>,
    key: Key,
    seconds: Arc<AtomicI64>,
    ticks: mpsc::Sender<Key>,
    running: Running,
    /// The first full hour after the object was created.
    first: i64,
}

impl World {
    /// Creates the object, which runs every hour, at a time between two of its runs.
    async fn create(prefix: &str, fields: Value) -> Self {
        let (cluster, namespace) = cluster::<CronJob>(prefix).await;
        let cron_jobs: Api<CronJob> = Api::namespaced(cluster.client(), &namespace);
        let container = json!({"name": "tide", "image": "tide:1"});
        let template = json!({
            "metadata": {"labels": {"of": "tide"}, "annotations": {"note": "kept"}},
            "spec": {"template": {"spec": {"restartPolicy": "OnFailure", "containers": [container]}}},
        });
        let mut spec = json!({"schedule": "0 * * * *", "jobTemplate": template});
        for (field, value) in fields.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let made: CronJob = serde_json::from_value(json!({"metadata": {"name": "tide"}, "spec": spec})).unwrap();
        let made = cron_jobs.create(&PostParams::default(), &made).await.unwrap();
        let created = made.creation_timestamp().unwrap().0.as_second();
        let seconds = Arc::new(AtomicI64::new(created));
        let now = seconds.clone();
        let now = move || Timestamp::from_second(now.load(Ordering::SeqCst)).unwrap();
        let (ticks, keys) = mpsc::channel(8);
        let running = run(manager(cluster, &namespace).controller(controller().wall_clock(now).reconcile_on(keys)));
        let jobs = Api::namespaced(cluster.client(), &namespace);
        let key = Key::namespaced(&namespace, "tide");
        let first = (created / HOUR + 1) * HOUR;
        let world = Self { cron_jobs, jobs, key, seconds, ticks, running, first };
        world.settle().await;
        world
    }

    /// Waits until the controller has seen everything: a reconcile that started now has ended.
    async fn settle(&self) {
        // One may be under way.
        let mut ticks = self.ticks.clone();
        self.running.until_reconciled(2, || drop(ticks.try_send(self.key.clone()))).await;
    }

    /// Sets the clock to seconds after the first run.
    async fn at(&self, seconds: i64) {
        self.seconds.store(self.first + seconds, Ordering::SeqCst);
        self.settle().await;
    }

    /// Returns the hours, from the first run, whose Jobs exist.
    async fn hours(&self) -> Vec<i64> {
        let jobs = self.jobs.list(&ListParams::default()).await.unwrap();
        let mut hours: Vec<i64> = jobs.iter().map(|job| self.hour(job)).collect();
        hours.sort_unstable();
        hours
    }

    fn hour(&self, job: &Job) -> i64 {
        let time: Timestamp = job.annotations()[SCHEDULED_AT].parse().unwrap();
        (time.as_second() - self.first) / HOUR
    }

    async fn until_hours(&self, wanted: &[i64]) {
        let there = wait::until(format!("Jobs of the hours {wanted:?}"), async || {
            let hours = self.hours().await;
            if hours == wanted { Ok(()) } else { Err(format!("{hours:?}")) }
        });
        there.await.unwrap();
    }

    fn name(&self, hour: i64) -> String {
        format!("tide-{}", self.first + hour * HOUR)
    }

    /// Does what kube-controller-manager does at the end of a Job: `Complete` or `Failed`.
    async fn finish(&self, hour: i64, end: &str) {
        let time = Timestamp::from_second(self.first + hour * HOUR).unwrap().to_string();
        let condition =
            |type_: &str| json!({"type": type_, "status": "True", "reason": "Test", "lastTransitionTime": time});
        let mut status = match end {
            "Complete" => {
                json!({"conditions": [condition("SuccessCriteriaMet"), condition(end)], "completionTime": time})
            }
            _ => json!({"conditions": [condition("FailureTarget"), condition(end)]}),
        };
        status["startTime"] = time.clone().into();
        let patch = Patch::Merge(json!({"status": status}));
        self.jobs.patch_status(&self.name(hour), &PatchParams::default(), &patch).await.unwrap();
    }

    async fn set(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.cron_jobs.patch("tide", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn until(&self, type_: &str, status: &str, reason: &str) -> CronJob {
        until_condition(&self.cron_jobs, "tide", type_, status, reason).await
    }

    async fn last_hour(&self) -> Option<i64> {
        let status = self.cron_jobs.get("tide").await.unwrap().status?.fields;
        status.last_schedule_time.map(|time| (time.0.as_second() - self.first) / HOUR)
    }
}

#[tokio::test]
async fn a_run_starts_once_and_of_those_that_were_missed_only_the_last_one() {
    let world = World::create("runs", json!({})).await;
    world.until("Available", "True", "AllJobsCompleted").await;
    assert!(world.hours().await.is_empty(), "nothing is due before the first hour");
    world.at(0).await;
    assert_eq!(world.hours().await, [0]);
    let job = world.jobs.get(&world.name(0)).await.unwrap();
    let owner = &job.owner_references()[0];
    assert_eq!((&*owner.kind, &*owner.name, owner.controller), ("CronJob", "tide", Some(true)));
    assert_eq!((&*job.labels()["of"], &*job.annotations()["note"]), ("tide", "kept"));
    let cron_job = world.until("Available", "True", "JobsActive").await;
    let status = cron_job.status.unwrap().fields;
    assert_eq!(status.active[0].name, job.metadata.name);
    assert_eq!(status.last_schedule_time.unwrap().0.as_second(), world.first);

    world.at(HOUR - 1).await;
    assert_eq!(world.hours().await, [0], "the second run is not due");
    // The controller was away for more than a hundred runs.
    world.at(120 * HOUR + 1800).await;
    assert_eq!(world.hours().await, [0, 120]);
    world.settle().await;
    assert_eq!((world.hours().await, world.last_hour().await), (vec![0, 120], Some(120)));
    world.running.stop().await;
}

#[tokio::test]
async fn a_run_that_may_not_be_concurrent_waits_for_the_one_before() {
    let world = World::create("forbid", json!({"concurrencyPolicy": "Forbid"})).await;
    world.at(0).await;
    world.at(HOUR).await;
    assert_eq!(world.hours().await, [0]);
    world.finish(0, "Complete").await;
    // The change of the Job is enough: the clock stands still.
    world.until_hours(&[0, 1]).await;
    world.running.stop().await;
}

#[tokio::test]
async fn a_run_that_replaces_deletes_what_is_active_and_nothing_else() {
    let world = World::create("replace", json!({"concurrencyPolicy": "Replace"})).await;
    world.at(0).await;
    world.finish(0, "Complete").await;
    world.at(HOUR).await;
    // If the controller has not seen yet that the Job is complete, the Job stays, and the change reconciles again.
    world.until_hours(&[0, 1]).await;
    world.at(2 * HOUR).await;
    world.until_hours(&[0, 2]).await;
    let active = |cron_job: &CronJob| {
        let status = cron_job.status.iter();
        status.flat_map(|status| &status.active).filter_map(|job| job.name.clone()).collect::<Vec<_>>()
    };
    let is_new = |cron_job: &CronJob| active(cron_job) == [world.name(2)];
    wait::until_object(&world.cron_jobs, "tide", "only the new Job is active", is_new).await.unwrap();
    world.running.stop().await;
}

#[tokio::test]
async fn the_history_has_as_many_jobs_as_the_limits_say_and_no_run_starts_again() {
    let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 2});
    let world = World::create("history", limits).await;
    for (hour, end) in [(0, "Complete"), (1, "Failed"), (2, "Failed"), (3, "Complete"), (4, "Failed")] {
        world.at(hour * HOUR).await;
        world.finish(hour, end).await;
    }
    world.until_hours(&[2, 3, 4]).await;
    world.until("Available", "False", "JobsFailed").await;
    world.at(5 * HOUR).await;
    assert_eq!(world.hours().await, [2, 3, 4, 5], "what is active is not history");
    world.finish(5, "Complete").await;
    // Without history, only the status knows what was started.
    world.set(json!({"successfulJobsHistoryLimit": 0, "failedJobsHistoryLimit": 0})).await;
    world.until_hours(&[]).await;
    world.until("Ready", "True", "AllJobsCompleted").await;
    world.settle().await;
    assert_eq!((world.hours().await, world.last_hour().await), (vec![], Some(5)));
    world.running.stop().await;
}

#[tokio::test]
async fn nothing_starts_while_suspended_or_after_the_deadline() {
    let world = World::create("suspend", json!({"suspend": true, "startingDeadlineSeconds": 60})).await;
    world.at(30).await;
    world.until("Available", "False", "Suspended").await;
    assert!(world.hours().await.is_empty());
    world.set(json!({"suspend": false})).await;
    world.until_hours(&[0]).await;
    world.at(HOUR + 61).await;
    assert_eq!(world.hours().await, [0]);
    world.until("Ready", "False", "MissedSchedule").await;
    world.at(2 * HOUR + 60).await;
    assert_eq!(world.hours().await, [0, 2]);
    world.until("Ready", "True", "JobsActive").await;
    world.running.stop().await;
}

#[tokio::test]
async fn what_is_wrong_is_reported_until_it_is_corrected() {
    let world = World::create("wrong", json!({"schedule": "at noon"})).await;
    world.until("Stalled", "True", "InvalidSchedule").await;
    // What is known of its Jobs is reported nevertheless.
    world.until("Available", "True", "AllJobsCompleted").await;
    let template = |containers: Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.set(json!({"schedule": "0 * * * *", "jobTemplate": template(json!([]))})).await;
    world.until("Ready", "True", "AllJobsCompleted").await;
    world.seconds.store(world.first, Ordering::SeqCst);
    drop(world.ticks.clone().try_send(world.key.clone()));
    world.until("Ready", "False", "JobCreationFailed").await;
    world.set(json!({"jobTemplate": template(json!([{"name": "tide", "image": "tide:2"}]))})).await;
    world.until_hours(&[0]).await;
    world.until("Ready", "True", "JobsActive").await;
    world.running.stop().await;
}

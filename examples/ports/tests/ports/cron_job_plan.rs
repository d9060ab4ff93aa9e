//! The schedule and the plan, without a cluster.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ports::cron_job::{
    AVAILABLE, ConcurrencyPolicy, CronJob, CronJobStatus, Run, SCHEDULED_AT, Schedule, observe, plan,
};
use serde_json::json;
use trishanku_framework::status::Report;

fn time(text: &str) -> Timestamp {
    format!("2026-11-{text}Z").parse().unwrap()
}

fn schedule(text: &str) -> Schedule {
    Schedule::parse(text).unwrap()
}

#[test]
fn a_schedule_has_five_fields_or_a_name() {
    let from = time("26T10:15:30");
    for (text, next) in [
        ("30 * * * *", "26T10:30:00"),
        ("*/20 * * * *", "26T10:20:00"),
        ("0 9-17 * * MON-FRI", "26T11:00:00"),
        ("0 0 1,28 * *", "28T00:00:00"),
        // One of the two days is enough, as in every cron.
        ("0 0 28 * FRI", "27T00:00:00"),
        ("@hourly", "26T11:00:00"),
        ("@daily", "27T00:00:00"),
    ] {
        assert_eq!(schedule(text).next(from), Some(time(next)), "{text}");
    }
    assert_eq!(schedule("0 0 30 2 *").next(from), None);
    for wrong in ["", "* * * *", "* * * * * *", "60 * * * *", "0 0 * * FUNDAY", "at noon"] {
        assert!(Schedule::parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_last_run_is_due_until_it_was_started_or_its_deadline_has_passed() {
    let (hourly, last) = (schedule("@hourly"), time("26T10:15:00"));
    let minute = Some(SignedDuration::from_mins(1));
    assert_eq!(hourly.run(last, time("26T10:59:59"), None), Run::NotDue);
    assert_eq!(hourly.run(last, time("26T11:00:00"), minute), Run::Due(time("26T11:00:00")));
    assert_eq!(hourly.run(last, time("26T11:01:00"), minute), Run::Due(time("26T11:00:00")));
    assert_eq!(hourly.run(last, time("26T11:01:01"), minute), Run::TooLate(time("26T11:00:00")));
    assert_eq!(hourly.run(last, time("28T10:30:00"), None), Run::Due(time("28T10:00:00")));
    assert_eq!(hourly.run(time("26T11:00:00"), time("26T11:59:00"), None), Run::NotDue);
    // The clock was set back.
    assert_eq!(hourly.run(time("26T11:00:00"), time("26T10:30:00"), None), Run::NotDue);
}

fn cron_job() -> CronJob {
    let made = json!({
        "metadata": {"name": "tide", "namespace": "plant", "creationTimestamp": "2026-11-26T10:15:00Z"},
        "spec": {"schedule": "@hourly", "jobTemplate": {}},
    });
    serde_json::from_value(made).unwrap()
}

/// A Job of an hour, which has ended as this condition says.
fn job(hour: u8, end: &str) -> Arc<Job> {
    let at = time(&format!("26T{hour}:00:00")).to_string();
    let made = json!({
        "metadata": {"name": format!("tide-{hour}"), "annotations": {SCHEDULED_AT: at}},
        "status": {"startTime": at, "conditions": [{"type": end, "status": "True"}]},
    });
    Arc::new(serde_json::from_value(made).unwrap())
}

fn names<'a>(jobs: impl IntoIterator<Item = &'a Arc<Job>>) -> Vec<&'a str> {
    jobs.into_iter().filter_map(|job| job.metadata.name.as_deref()).collect()
}

#[test]
fn a_job_is_not_deleted_before_the_status_knows_its_run() {
    let mut object = cron_job();
    object.spec.successful_jobs_history_limit = Some(0);
    let (jobs, now) = ([job(12, "Complete"), job(11, "Complete")], time("26T12:30:00"));
    let hourly = schedule("@hourly");
    assert!(plan(&object, Some(&hourly), &jobs, now).delete.is_empty());
    let mut status = object.status.take().unwrap_or_default();
    let _report = observe(&object, &jobs[1..], None, &mut status);
    object.status = Some(status);
    assert_eq!(names(&plan(&object, Some(&hourly), &jobs, now).delete), ["tide-11"]);
}

#[test]
fn a_plan_without_a_valid_schedule_only_cleans_up() {
    let mut object = cron_job();
    object.spec.failed_jobs_history_limit = Some(1);
    let (jobs, now) = ([job(12, "Failed"), job(11, "Failed")], time("26T15:30:00"));
    let mut status = object.status.take().unwrap_or_default();
    let _report = observe(&object, &jobs, None, &mut status);
    object.status = Some(status);
    let plan = plan(&object, None, &jobs, now);
    assert_eq!((names(&plan.delete), plan.start, plan.next), (vec!["tide-11"], None, None));
}

#[test]
fn a_problem_is_reported_before_what_the_jobs_say_which_is_reported_nevertheless() {
    let (object, jobs) = (cron_job(), [job(11, "Failed")]);
    let problem = Report::stalled("InvalidSchedule", "at noon");
    let mut status = CronJobStatus::default();
    let failed = "Jobs that failed: 1";
    let report = observe(&object, &jobs, Some(problem.clone()), &mut status);
    assert_eq!(report, problem.and(AVAILABLE, false, "JobsFailed", failed));
    let expected = Report::reconciling("JobsFailed", failed).warns(true).and(AVAILABLE, false, "JobsFailed", failed);
    assert_eq!(observe(&object, &jobs, None, &mut status), expected);
}

#[test]
fn the_policy_decides_about_jobs_that_are_active() {
    let (jobs, now, hourly) = ([job(11, "Suspended"), job(10, "Complete")], time("26T12:00:00"), schedule("@hourly"));
    for (policy, deleted, starts) in [
        (ConcurrencyPolicy::Allow, vec![], true),
        (ConcurrencyPolicy::Forbid, vec![], false),
        (ConcurrencyPolicy::Replace, vec!["tide-11"], true),
    ] {
        let mut object = cron_job();
        object.spec.concurrency_policy = policy;
        let plan = plan(&object, Some(&hourly), &jobs, now);
        assert_eq!((names(&plan.delete), plan.start.is_some()), (deleted, starts), "{policy:?}");
        assert_eq!(plan.next, Some(time("26T13:00:00")));
    }
}

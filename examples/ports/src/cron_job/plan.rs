//! What the Jobs of an object say, and what to do: no cluster, no clock.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource as _, ResourceExt as _};
use trishanku_framework::status::Report;

use super::kind::{ConcurrencyPolicy, CronJob, CronJobStatus};
use super::schedule::{Run, Schedule};

/// The annotation of a Job with the scheduled time of its run.
pub const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The condition that others wait for.
pub const AVAILABLE: &str = "Available";

/// What to do.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Jobs to delete.
    pub delete: Vec<Arc<Job>>,
    /// The Job to start, with the scheduled time of its run.
    pub start: Option<(Job, Timestamp)>,
    /// The scheduled time of a run whose deadline has passed.
    pub missed: Option<Timestamp>,
    /// When to look again.
    pub next: Option<Timestamp>,
}

impl Plan {
    /// Returns the report of a run whose deadline has passed.
    pub fn problem(&self) -> Option<Report> {
        let message = |time| format!("the run of {time} did not start before its deadline");
        self.missed.map(|time| Report::reconciling("MissedSchedule", message(time)).warns(true))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Active,
    Complete,
    Failed,
}

fn phase(job: &Job) -> Phase {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut met = conditions.filter(|condition| condition.status == "True").map(|condition| condition.type_.as_str());
    match met.find(|type_| matches!(*type_, "Complete" | "Failed")) {
        Some("Complete") => Phase::Complete,
        Some(_) => Phase::Failed,
        None => Phase::Active,
    }
}

fn in_phase(jobs: &[Arc<Job>], wanted: Phase) -> impl Iterator<Item = &Arc<Job>> {
    jobs.iter().filter(move |job| phase(job) == wanted)
}

fn scheduled_at(job: &Job) -> Option<Timestamp> {
    job.annotations().get(SCHEDULED_AT)?.parse().ok()
}

/// Returns the plan. Without a `schedule`, none can be parsed: then only the history is cleaned up.
pub fn plan(cron_job: &CronJob, schedule: Option<&Schedule>, jobs: &[Arc<Job>], now: Timestamp) -> Plan {
    let spec = &cron_job.spec;
    let recorded = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref()).map(|time| time.0);
    let limits =
        [(Phase::Complete, spec.successful_jobs_history_limit), (Phase::Failed, spec.failed_jobs_history_limit)];
    let old = limits.into_iter().flat_map(|(phase, limit)| beyond(jobs, phase, limit));
    // The status must know of a run before its Job is deleted, or the run would start again.
    let mut plan =
        Plan { delete: old.filter(|job| scheduled_at(job) <= recorded).cloned().collect(), ..Plan::default() };
    let Some(schedule) = schedule.filter(|_| spec.suspend != Some(true)) else { return plan };
    plan.next = schedule.next(now);
    let created = cron_job.creation_timestamp().map_or(now, |time| time.0);
    let last = jobs.iter().filter_map(|job| scheduled_at(job)).chain(recorded).max().unwrap_or(created);
    match schedule.run(last, now, spec.starting_deadline_seconds.map(SignedDuration::from_secs)) {
        Run::NotDue => {}
        Run::TooLate(time) => plan.missed = Some(time),
        Run::Due(time) => {
            let mut active = in_phase(jobs, Phase::Active).peekable();
            if spec.concurrency_policy != ConcurrencyPolicy::Forbid || active.peek().is_none() {
                plan.start = Some((job(cron_job, time), time));
            }
            if spec.concurrency_policy == ConcurrencyPolicy::Replace {
                plan.delete.extend(active.cloned());
            }
        }
    }
    plan
}

/// Returns the oldest Jobs beyond a limit.
fn beyond(jobs: &[Arc<Job>], phase: Phase, limit: Option<i32>) -> Vec<&Arc<Job>> {
    let mut found: Vec<_> = in_phase(jobs, phase).collect();
    found.sort_by_key(|job| job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0));
    let kept = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
    found.truncate(found.len().saturating_sub(kept));
    found
}

/// Returns the Job of a run. Its name is that of no other run, so that no run starts twice.
fn job(cron_job: &CronJob, time: Timestamp) -> Job {
    let template = cron_job.spec.job_template.clone();
    let mut job = Job { metadata: template.metadata.unwrap_or_default(), spec: template.spec, ..Job::default() };
    job.metadata.name = Some(format!("{}-{}", cron_job.name_any(), time.as_second()));
    job.annotations_mut().insert(SCHEDULED_AT.to_owned(), time.to_string());
    job
}

/// Puts what the Jobs say into the status, and returns the report. A `problem` comes before what the Jobs say.
pub fn observe(cron_job: &CronJob, jobs: &[Arc<Job>], problem: Option<Report>, status: &mut CronJobStatus) -> Report {
    let recorded = status.last_schedule_time.as_ref().map(|time| time.0);
    status.last_schedule_time = jobs.iter().filter_map(|job| scheduled_at(job)).chain(recorded).max().map(Time);
    let mut active: Vec<_> = in_phase(jobs, Phase::Active).map(|job| job.object_ref(&())).collect();
    active.sort_by(|one, other| one.name.cmp(&other.name));
    let (running, failed) = (active.len(), in_phase(jobs, Phase::Failed).count());
    status.active = active;
    let (is_available, reason, message) = if cron_job.spec.suspend == Some(true) {
        (false, "Suspended", "spec.suspend is true".to_owned())
    } else if failed > 0 {
        (false, "JobsFailed", format!("Jobs that failed: {failed}"))
    } else if running > 0 {
        (true, "JobsActive", format!("Jobs that are active: {running}"))
    } else {
        (true, "AllJobsCompleted", String::new())
    };
    let report = problem.unwrap_or_else(|| match reason {
        "Suspended" => Report::stalled(reason, &*message).warns(false),
        _ if is_available => Report::ready(reason, &*message),
        _ => Report::reconciling(reason, &*message).warns(true),
    });
    report.and(AVAILABLE, is_available, reason, message)
}

//! Defaults and checks of an object that is written.

use trishanku_framework::webhook::{Admission, Denied, Hook, Webhooks};

use super::kind::{CronJob, CronJobSpec};
use super::schedule::Schedule;

/// Length of a Kubernetes label, in which the name of a Job must fit.
const LABEL: usize = 63;
/// Length of what a run adds to the name of its Job: `-1767225600`.
const SUFFIX: usize = 11;

/// Adds the hooks. `named` makes one from its name.
pub fn hooks(webhooks: Webhooks, named: impl Fn(&'static str) -> Hook) -> Webhooks {
    let defaults = |mut admission: Admission<CronJob>| async move {
        admission.object.spec = with_defaults(admission.object.spec);
        Ok(admission.object)
    };
    let check = |admission: Admission<CronJob>| async move {
        validate(admission.key.name(), &admission.object.spec).map_err(Denied::invalid)
    };
    webhooks.mutating(named("mcronjob-v1.kb.io"), defaults).validating(named("vcronjob-v1.kb.io"), check)
}

/// Returns the spec with the defaults of what is not set.
pub fn with_defaults(mut spec: CronJobSpec) -> CronJobSpec {
    spec.suspend.get_or_insert(false);
    spec.successful_jobs_history_limit.get_or_insert(3);
    spec.failed_jobs_history_limit.get_or_insert(1);
    spec
}

/// Checks what the schema cannot.
///
/// # Errors
/// What is wrong, for the user.
pub fn validate(name: &str, spec: &CronJobSpec) -> Result<(), String> {
    let schedule = Schedule::parse(&spec.schedule).err().map(|error| format!("spec.schedule: {error}"));
    let most = LABEL - SUFFIX;
    let name = (name.len() > most).then(|| format!("metadata.name: {name:?} has more than {most} characters"));
    let wrong: Vec<String> = name.into_iter().chain(schedule).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

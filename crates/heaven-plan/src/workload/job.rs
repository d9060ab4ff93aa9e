//! Jobs.

use k8s_openapi::api::batch::v1::Job;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::state::{conditions, text};
use super::{Pods, State, Workload};

/// Jobs that run one pod at a time. Their state becomes true when they complete.
///
/// The servers beside the containers of the template are native sidecars, so they stop, and gitcd commits, after the last
/// container has ended.
pub struct Jobs;

impl Workload for Jobs {
    const RUNS_ONCE: bool = true;

    fn resource() -> ApiResource {
        ApiResource::erase::<Job>(&())
    }

    fn spec(pods: Pods<'_>) -> Value {
        // The API server chooses the selector: a Job must not select the pods of its predecessor.
        json!({
            "suspend": pods.replicas == 0,
            // A replacement beside a pod that is being terminated would write to the same branch.
            "podReplacementPolicy": "Failed",
            "template": pods.template,
        })
    }

    fn state(job: &DynamicObject) -> State {
        let is = |of: &str| conditions(job).iter().find(|found| found["type"] == of && found["status"] == "True");
        let name = job.metadata.name.as_deref().unwrap_or_default();
        if let Some(failed) = is("Failed") {
            return State::new(false, text(failed, "reason"), text(failed, "message"));
        }
        if is("Complete").is_some() {
            return State::new(true, "Complete", format!("Job {name} is complete"));
        }
        if job.data["spec"]["suspend"] == true {
            return State::new(false, "NoReplicas", format!("Job {name} is suspended"));
        }
        State::new(false, "Running", format!("Job {name} is not complete yet"))
    }

    fn stop(job: &DynamicObject) -> Option<Value> {
        (job.data["spec"]["suspend"] != true).then(|| json!({"suspend": true}))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEAVEN, object};
    use super::*;

    #[test]
    fn a_job_runs_until_it_is_complete_or_has_failed() {
        let state = |replicas: i32, conditions: Value| {
            let pods = Pods { selector: (HEAVEN, "a"), replicas, template: json!({}), claim: None };
            let mut job = object::<Jobs>("a-heaven", pods, &[]);
            job.data["status"] = json!({"conditions": conditions});
            assert_eq!(Jobs::stop(&job).is_some(), replicas > 0);
            Jobs::state(&job)
        };
        let condition = |of: &str, reason: &str| json!([{"type": of, "status": "True", "reason": reason}]);
        assert_eq!(state(1, json!([])).reason, "Running");
        assert_eq!(state(0, json!([])).reason, "NoReplicas");
        let failed = state(1, condition("Failed", "BackoffLimitExceeded"));
        assert!(failed.is_stuck() && !failed.is, "{failed:?}");
        let complete = state(1, condition("Complete", "CompletionsReached"));
        assert!(complete.is && !complete.is_stuck(), "{complete:?}");
    }
}

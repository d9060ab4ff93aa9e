//! The state of a workload, as a condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::Value;

/// The status of a condition, with reason and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Whether the condition is true.
    pub is: bool,
    /// The reason, in one word.
    pub reason: String,
    /// The message for users.
    pub message: String,
}

impl State {
    /// Creates a state.
    pub fn new(is: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is, reason: reason.into(), message: message.into() }
    }

    /// Whether this is the state of a rollout or a Job that has failed, by a reason of the Deployment controller for
    /// `Progressing=False`, or of the Job controller for `Failed=True`:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/deployment/util/deployment_util.go>,
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/staging/src/k8s.io/api/batch/v1/types.go>
    pub fn is_stuck(&self) -> bool {
        const ROLLOUT: [&str; 3] = ["ProgressDeadlineExceeded", "ReplicaSetCreateError", "FailedCreate"];
        !self.is && ROLLOUT.contains(&self.reason.as_str()) || self.has_failed()
    }

    /// Whether this is the state of a Job that has failed, which nothing changes any more.
    pub fn has_failed(&self) -> bool {
        const REASONS: [&str; 5] = [
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "PodFailurePolicy",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
        ];
        !self.is && REASONS.contains(&self.reason.as_str())
    }
}

/// The state of a workload whose controller has not observed its present generation, if that is so.
pub(super) fn not_observed(object: &DynamicObject, kind: &str) -> Option<State> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let is_old = object.data["status"]["observedGeneration"].as_i64() < object.metadata.generation;
    is_old
        .then(|| State::new(false, "NotObserved", format!("the {kind} controller has not observed {kind} {name} yet")))
}

/// Returns the conditions in the status of a workload.
pub(super) fn conditions(object: &DynamicObject) -> &[Value] {
    object.data["status"]["conditions"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns a text of a condition.
pub(super) fn text(condition: &Value, field: &str) -> String {
    condition[field].as_str().unwrap_or_default().to_owned()
}

/// Returns a counter; a missing one is zero.
pub(super) fn count(of: &Value) -> i64 {
    of.as_i64().unwrap_or(0)
}

/// Sets a condition; its transition time changes only with its status.
pub fn set(conditions: &mut Vec<Condition>, of: &str, state: Option<&State>, generation: Option<i64>) {
    let Some(State { is, reason, message }) = state else {
        conditions.retain(|condition| condition.type_ != of);
        return;
    };
    let status = if *is { "True" } else { "False" };
    let before = conditions.iter().find(|condition| condition.type_ == of && condition.status == status);
    let since = before.map_or_else(|| Time(Timestamp::now()), |before| before.last_transition_time.clone());
    let condition = Condition {
        type_: of.to_owned(),
        status: status.to_owned(),
        // The API server rejects an empty reason.
        reason: if reason.is_empty() { "Unknown".to_owned() } else { reason.clone() },
        message: message.clone(),
        observed_generation: generation,
        last_transition_time: since,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == of) {
        Some(there) => *there = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_it_turns() {
        let mut conditions = Vec::new();
        set(&mut conditions, "A", Some(&State::new(false, "x", "")), Some(1));
        conditions[0].last_transition_time = Time(Timestamp::UNIX_EPOCH);
        set(&mut conditions, "A", Some(&State::new(false, "", "other")), Some(2));
        assert_eq!(conditions[0].last_transition_time.0, Timestamp::UNIX_EPOCH);
        assert_eq!((conditions[0].reason.as_str(), conditions[0].observed_generation), ("Unknown", Some(2)));
        set(&mut conditions, "A", Some(&State::new(true, "y", "")), Some(2));
        assert_ne!(conditions[0].last_transition_time.0, Timestamp::UNIX_EPOCH);
        set(&mut conditions, "A", None, Some(2));
        assert!(conditions.is_empty());
    }
}

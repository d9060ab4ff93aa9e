//! `StatefulSet` objects.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::state::{count, not_observed};
use super::{Pods, Replicas, State, Workload};

/// `StatefulSet` objects. A pod and its successor have the same name, and with it the same branch and claim; the successor
/// starts after the old pod is gone.
pub struct StatefulSets;

impl Workload for StatefulSets {
    const REPLICAS: Replicas = Replicas::Named { field: "metadata.name", has_claims: true };

    fn resource() -> ApiResource {
        ApiResource::erase::<StatefulSet>(&())
    }

    fn spec(pods: Pods<'_>) -> Value {
        let mut spec = json!({
            "replicas": pods.replicas,
            "selector": {"matchLabels": pods.selector()},
            // Each replica has a branch of its own, so none waits for another one.
            "podManagementPolicy": "Parallel",
            "template": pods.template,
        });
        if let Some(claim) = pods.claim {
            spec["volumeClaimTemplates"] = json!([claim]);
        }
        spec
    }

    /// As `kubectl rollout status` decides:
    /// <https://github.com/kubernetes/kubectl/blob/v0.36.3/pkg/polymorphichelpers/rollout_status.go>
    fn state(set: &DynamicObject) -> State {
        if let Some(state) = not_observed(set, "StatefulSet") {
            return state;
        }
        let (name, status) = (set.metadata.name.as_deref().unwrap_or_default(), &set.data["status"]);
        let desired = set.data["spec"]["replicas"].as_i64().unwrap_or(1);
        if desired == 0 {
            return State::new(false, "NoReplicas", format!("StatefulSet {name} is scaled to zero"));
        }
        let (ready, updated) = (count(&status["readyReplicas"]), count(&status["updatedReplicas"]));
        let is_old = status["updateRevision"] != status["currentRevision"] && updated < desired;
        if is_old || count(&status["replicas"]) > desired {
            let message = format!("StatefulSet {name}: {updated} of {desired} pods are updated");
            return State::new(false, "RolloutInProgress", message);
        }
        if ready < desired {
            let message = format!("{ready} of {desired} pods of StatefulSet {name} are ready");
            return State::new(false, "MinimumReplicasUnavailable", message);
        }
        State::new(true, "MinimumReplicasAvailable", format!("all pods of StatefulSet {name} are ready"))
    }

    fn stop(set: &DynamicObject) -> Option<Value> {
        (set.data["spec"]["replicas"] != 0).then(|| json!({"replicas": 0}))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEAVEN, object};
    use super::*;

    #[test]
    fn a_set_is_available_when_all_its_pods_are_new_and_ready() {
        let state = |replicas: i32, status: Value| {
            let pods = Pods { selector: (HEAVEN, "a"), replicas, template: json!({}), claim: None };
            let mut set = object::<StatefulSets>("a-heaven", pods, &[]);
            set.metadata.generation = Some(2);
            set.data["status"] = status;
            let state = StatefulSets::state(&set);
            (state.is, state.reason)
        };
        let status = |replicas: i32, ready: i32, updated: i32, current: &str| {
            json!({
                "observedGeneration": 2, "replicas": replicas, "readyReplicas": ready, "updatedReplicas": updated,
                "currentRevision": current, "updateRevision": "new",
            })
        };
        for (replicas, status, is, reason) in [
            (2, json!({}), false, "NotObserved"),
            (2, status(2, 2, 2, "new"), true, "MinimumReplicasAvailable"),
            (2, status(2, 2, 1, "old"), false, "RolloutInProgress"),
            (2, status(3, 3, 3, "new"), false, "RolloutInProgress"),
            (2, status(2, 1, 2, "new"), false, "MinimumReplicasUnavailable"),
            (0, status(0, 0, 0, "new"), false, "NoReplicas"),
        ] {
            assert_eq!(state(replicas, status.clone()), (is, reason.to_owned()), "{status}");
        }
    }
}

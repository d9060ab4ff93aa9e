//! Deployments.

use k8s_openapi::api::apps::v1::Deployment;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::state::{conditions, count, not_observed, text};
use super::{Pods, State, Workload};

/// Deployments that never run an old pod beside a new one: a branch has one writer.
pub struct Deployments;

impl Workload for Deployments {
    fn resource() -> ApiResource {
        ApiResource::erase::<Deployment>(&())
    }

    fn spec(pods: Pods<'_>) -> Value {
        json!({
            "replicas": pods.replicas,
            "selector": {"matchLabels": pods.selector()},
            // A new pod beside the old one would write to the same branch.
            "strategy": {"type": "Recreate"},
            "template": pods.template,
        })
    }

    /// Old pods do not count, though `Available` includes them until they are gone (as in `kubectl rollout status`:
    /// <https://github.com/kubernetes/kubectl/blob/v0.36.3/pkg/polymorphichelpers/rollout_status.go>).
    fn state(deployment: &DynamicObject) -> State {
        if let Some(state) = not_observed(deployment, "Deployment") {
            return state;
        }
        let (name, status) = (deployment.metadata.name.as_deref().unwrap_or_default(), &deployment.data["status"]);
        let find = |of: &str| conditions(deployment).iter().find(|condition| condition["type"] == of);
        // With zero replicas it stays `Available`.
        if deployment.data["spec"]["replicas"] == 0 {
            return State::new(false, "NoReplicas", format!("Deployment {name} is scaled to zero"));
        }
        let (updated, all) = (count(&status["updatedReplicas"]), count(&status["replicas"]));
        let are_new = updated >= deployment.data["spec"]["replicas"].as_i64().unwrap_or(1) && all <= updated;
        match (find("Available"), find("Progressing").filter(|progressing| progressing["status"] == "False")) {
            (Some(available), _) if available["status"] == "True" && are_new => {
                State::new(true, text(available, "reason"), text(available, "message"))
            }
            (_, Some(stuck)) => State::new(false, text(stuck, "reason"), text(stuck, "message")),
            (Some(available), None) if available["status"] == "True" => State::new(
                false,
                "RolloutInProgress",
                format!("Deployment {name} has old pods, or fewer pods than desired"),
            ),
            (Some(available), None) => State::new(false, text(available, "reason"), text(available, "message")),
            (None, None) => State::new(false, "NotObserved", format!("Deployment {name} has no conditions yet")),
        }
    }

    fn stop(deployment: &DynamicObject) -> Option<Value> {
        (deployment.data["spec"]["replicas"] != 0).then(|| json!({"replicas": 0}))
    }

    /// The strategy `Recreate` does not allow parameters of a rolling update.
    fn remove_conflicting_fields(deployment: &DynamicObject, _: i32) -> Option<Value> {
        let has_parameters = !deployment.data["spec"]["strategy"]["rollingUpdate"].is_null();
        has_parameters.then(|| json!({"strategy": {"type": "Recreate", "rollingUpdate": null}}))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEAVEN, object};
    use super::*;

    fn with_status(replicas: i32, status: Value) -> DynamicObject {
        let pods = Pods { selector: (HEAVEN, "a"), replicas, template: json!({}), claim: None };
        let mut deployment = object::<Deployments>("a-heaven", pods, &[]);
        deployment.metadata.generation = Some(3);
        deployment.data["status"] = status;
        deployment
    }

    #[test]
    fn a_deployment_is_as_available_as_it_says_of_its_present_generation() {
        let condition = |of: &str, status: &str| json!({"type": of, "status": status, "reason": of, "message": "m"});
        let counted = |all: i32, updated: i32, available: &str| {
            json!({
                "observedGeneration": 3, "replicas": all, "updatedReplicas": updated,
                "conditions": [condition("Available", available)],
            })
        };
        for (replicas, status, expected) in [
            (1, json!({}), (false, "NotObserved")),
            (
                1,
                json!({"observedGeneration": 2, "conditions": [condition("Available", "True")]}),
                (false, "NotObserved"),
            ),
            (1, json!({"observedGeneration": 3}), (false, "NotObserved")),
            (1, counted(1, 1, "True"), (true, "Available")),
            // The old pod still runs, or is about to be replaced.
            (1, counted(1, 0, "True"), (false, "RolloutInProgress")),
            (1, counted(2, 1, "True"), (false, "RolloutInProgress")),
            (2, counted(1, 1, "True"), (false, "RolloutInProgress")),
            (1, counted(0, 0, "False"), (false, "Available")),
            (
                1,
                json!({"observedGeneration": 3, "conditions": [condition("Available", "False")]}),
                (false, "Available"),
            ),
            (
                0,
                json!({"observedGeneration": 3, "conditions": [condition("Available", "True")]}),
                (false, "NoReplicas"),
            ),
            (
                1,
                json!({"observedGeneration": 3, "conditions": [condition("Available", "False"), condition("Progressing", "False")]}),
                (false, "Progressing"),
            ),
        ] {
            let state = Deployments::state(&with_status(replicas, status));
            assert_eq!((state.is, state.reason.as_str()), expected);
        }
    }
}

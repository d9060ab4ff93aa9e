//! `DaemonSet` objects.

use k8s_openapi::api::apps::v1::DaemonSet;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

use super::state::{count, not_observed};
use super::{Pods, Replicas, State, Workload};

/// `DaemonSet` objects, with a branch for each node. `maxSurge` is zero, so a node never has an old pod beside a new one.
pub struct DaemonSets;

/// A node label that no node has, to suspend a `DaemonSet`: it cannot be scaled to zero.
const SUSPENDED_NODE_LABEL: &str = "controllers.trishanku.org/suspended";

impl Workload for DaemonSets {
    const REPLICAS: Replicas = Replicas::Named { field: "spec.nodeName", has_claims: false };

    fn resource() -> ApiResource {
        ApiResource::erase::<DaemonSet>(&())
    }

    fn spec(mut pods: Pods<'_>) -> Value {
        if pods.replicas == 0 {
            super::entry(super::entry(&mut pods.template, "spec"), "nodeSelector")[SUSPENDED_NODE_LABEL] =
                "true".into();
        }
        json!({
            "selector": {"matchLabels": pods.selector()},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": pods.template,
        })
    }

    /// As `kubectl rollout status` decides:
    /// <https://github.com/kubernetes/kubectl/blob/v0.36.3/pkg/polymorphichelpers/rollout_status.go>
    fn state(set: &DynamicObject) -> State {
        if let Some(state) = not_observed(set, "DaemonSet") {
            return state;
        }
        let (name, status) = (set.metadata.name.as_deref().unwrap_or_default(), &set.data["status"]);
        if is_stopped(set) {
            return State::new(false, "NoReplicas", format!("DaemonSet {name} is suspended"));
        }
        let desired = count(&status["desiredNumberScheduled"]);
        if desired == 0 {
            return State::new(
                false,
                "NoNodes",
                format!("no node matches the node selector, affinity and tolerations of DaemonSet {name}"),
            );
        }
        let (available, updated) = (count(&status["numberAvailable"]), count(&status["updatedNumberScheduled"]));
        if updated < desired {
            let message = format!("DaemonSet {name}: {updated} of {desired} pods are updated");
            return State::new(false, "RolloutInProgress", message);
        }
        if available < desired {
            let message = format!("{available} of {desired} pods of DaemonSet {name} are available");
            return State::new(false, "MinimumReplicasUnavailable", message);
        }
        State::new(true, "MinimumReplicasAvailable", format!("all pods of DaemonSet {name} are available"))
    }

    /// The label is that of [`stop`](Self::stop), which the apply does not own.
    fn remove_conflicting_fields(set: &DynamicObject, replicas: i32) -> Option<Value> {
        let anywhere = json!({"template": {"spec": {"nodeSelector": {SUSPENDED_NODE_LABEL: null}}}});
        (replicas != 0 && is_stopped(set)).then_some(anywhere)
    }

    fn stop(set: &DynamicObject) -> Option<Value> {
        let nowhere = json!({"template": {"spec": {"nodeSelector": {SUSPENDED_NODE_LABEL: "true"}}}});
        (!is_stopped(set)).then_some(nowhere)
    }
}

fn is_stopped(set: &DynamicObject) -> bool {
    DaemonSets::template(set)["spec"]["nodeSelector"][SUSPENDED_NODE_LABEL] == "true"
}

#[cfg(test)]
mod tests {
    use super::super::{HEAVEN, object};
    use super::*;

    #[test]
    fn a_set_is_available_when_all_nodes_have_a_new_pod() {
        let state = |replicas: i32, status: Value| {
            let template = json!({"spec": {"nodeSelector": {"zone": "a"}, "containers": []}});
            let pods = Pods { selector: (HEAVEN, "a"), replicas, template, claim: None };
            let mut set = object::<DaemonSets>("a-heaven", pods, &[]);
            set.metadata.generation = Some(2);
            set.data["status"] = status;
            assert_eq!(DaemonSets::template(&set)["spec"]["nodeSelector"]["zone"], "a");
            assert_eq!(DaemonSets::stop(&set).is_some(), replicas > 0);
            let state = DaemonSets::state(&set);
            (state.is, state.reason)
        };
        let status = |desired: i32, available: i32, updated: i32| {
            json!({
                "observedGeneration": 2, "desiredNumberScheduled": desired, "numberAvailable": available,
                "updatedNumberScheduled": updated,
            })
        };
        for (replicas, status, is, reason) in [
            (1, json!({}), false, "NotObserved"),
            (1, status(2, 2, 2), true, "MinimumReplicasAvailable"),
            (1, status(2, 2, 1), false, "RolloutInProgress"),
            (1, status(2, 1, 2), false, "MinimumReplicasUnavailable"),
            (1, status(0, 0, 0), false, "NoNodes"),
            (0, status(0, 0, 0), false, "NoReplicas"),
        ] {
            assert_eq!(state(replicas, status.clone()), (is, reason.to_owned()), "{status}");
        }
    }
}

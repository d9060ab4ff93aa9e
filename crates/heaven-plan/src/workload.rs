//! The Deployment of a plan's pod, as JSON, so that fields of newer Kubernetes versions survive.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Map, Value, json};
use trishanku_framework::cache::Cache;
use trishanku_framework::{Key, Kind};

use crate::plan::ENCRYPTION;

/// Label of the pods of a heaven.
pub const HEAVEN: &str = "controllers.trishanku.org/heaven";
/// Label of the pods of an `AutomatedMerge`.
pub const MERGE: &str = "controllers.trishanku.org/automated-merge";

/// The kind Deployment, untyped, with all its fields.
pub fn kind() -> Kind<DynamicObject> {
    Kind::new(ApiResource::erase::<Deployment>(&()), true)
}

/// Returns a Deployment that never runs an old pod beside a new one: a branch has one writer.
///
/// `label` and `of` select its pods; `annotations` are added to those of the pod template.
pub fn deployment(
    name: &str,
    (label, of): (&str, &str),
    replicas: i32,
    mut template: Value,
    annotations: &[(&str, &str)],
) -> DynamicObject {
    let of = label_value(of);
    let labels = [(label, of.as_str())];
    for (field, values) in [("labels", &labels[..]), ("annotations", annotations)] {
        let there = entry(entry(&mut template, "metadata"), field);
        for (key, value) in values {
            there[*key] = (*value).into();
        }
    }
    let data = json!({"spec": {
        "replicas": replicas,
        "selector": {"matchLabels": {label: of}},
        // A new pod beside the old one would write to the same branch.
        "strategy": {"type": "Recreate"},
        "template": template,
    }});
    let resource = ApiResource::erase::<Deployment>(&());
    let types = Some(TypeMeta { api_version: resource.api_version, kind: resource.kind });
    let labels = Some([(label.to_owned(), of)].into());
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
    DynamicObject { types, metadata, data }
}

/// Removes fields by other managers that conflict with the strategy `Recreate`. Server-side apply cannot remove fields
/// that it does not own, so it would fail.
///
/// # Errors
/// The error of the API server. A concurrent change is not an error: the watch reports it.
pub async fn straighten(
    client: &Client,
    cache: &Cache<DynamicObject>,
    key: &Key,
    owner: Option<&str>,
) -> Result<(), kube::Error> {
    let Some(present) = ours(cache, key, owner) else { return Ok(()) };
    if present.data["spec"]["strategy"]["rollingUpdate"].is_null() {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": present.metadata.uid, "resourceVersion": present.metadata.resource_version},
        "spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}},
    });
    change(client, cache, key, patch).await
}

/// Scales a Deployment of an owner to zero, whatever else is wrong with it. The next apply restores the replicas.
///
/// # Errors
/// The error of the API server.
pub async fn rest(
    client: &Client,
    cache: &Cache<DynamicObject>,
    key: &Key,
    owner: Option<&str>,
) -> Result<(), kube::Error> {
    match ours(cache, key, owner) {
        Some(present) if present.data["spec"]["replicas"] != 0 => {
            let patch = json!({"metadata": {"uid": present.metadata.uid}, "spec": {"replicas": 0}});
            change(client, cache, key, patch).await
        }
        _ => Ok(()),
    }
}

/// Returns the Secret with the encryption configuration that the kube-apiserver of a Deployment uses, if it uses one.
pub fn encryption_secret(deployment: &DynamicObject) -> Option<String> {
    let volumes = deployment.data["spec"]["template"]["spec"]["volumes"].as_array()?;
    let volume = volumes.iter().find(|volume| volume["name"] == ENCRYPTION)?;
    volume["secret"]["secretName"].as_str().map(ToOwned::to_owned)
}

fn ours(cache: &Cache<DynamicObject>, key: &Key, owner: Option<&str>) -> Option<Arc<DynamicObject>> {
    let is_ours = |present: &Arc<DynamicObject>| {
        let owners = present.metadata.owner_references.iter().flatten();
        owners.filter(|found| found.controller == Some(true)).any(|found| Some(found.uid.as_str()) == owner)
    };
    cache.get(key).filter(is_ours)
}

/// Patches a Deployment. A concurrent change is not an error: the watch reports it.
async fn change(client: &Client, cache: &Cache<DynamicObject>, key: &Key, patch: Value) -> Result<(), kube::Error> {
    let api = cache.kind().api(client.clone(), key.namespace());
    match api.patch(key.name(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        answer => answer.map(drop),
    }
}

fn entry<'v>(value: &'v mut Value, field: &str) -> &'v mut Value {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let found = &mut value[field];
    if !found.is_object() {
        *found = Value::Object(Map::new());
    }
    found
}

/// Shortens a name to the length of a label value.
pub fn label_value(name: &str) -> String {
    const LONGEST: usize = 63;
    const KEPT: usize = 46;
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    // FNV-1a: labels must never change, and need no cryptographic hash.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{}-{hash:016x}", name[..KEPT].trim_end_matches(['-', '.']))
}

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

    /// Whether this is the state of a rollout that fails, by a reason of the Deployment controller for `Progressing=False`:
    /// <https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/controller/deployment/util/deployment_util.go>
    pub fn is_stuck(&self) -> bool {
        ["ProgressDeadlineExceeded", "ReplicaSetCreateError", "FailedCreate"].contains(&self.reason.as_str())
    }
}

/// Whether a Deployment's pods are ready, according to its status for the present generation. Old pods do not count,
/// though `Available` includes them until they are gone (as in `kubectl rollout status`:
/// <https://github.com/kubernetes/kubectl/blob/v0.36.3/pkg/polymorphichelpers/rollout_status.go>).
pub fn available(deployment: &DynamicObject) -> State {
    let (name, status) = (deployment.metadata.name.as_deref().unwrap_or_default(), &deployment.data["status"]);
    if status["observedGeneration"].as_i64() < deployment.metadata.generation {
        return State::new(
            false,
            "NotObserved",
            format!("the Deployment controller has not observed Deployment {name} yet"),
        );
    }
    let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let find = |of: &str| conditions.iter().find(|condition| condition["type"] == of);
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    // With zero replicas it stays `Available`.
    if deployment.data["spec"]["replicas"] == 0 {
        return State::new(false, "NoReplicas", format!("Deployment {name} is scaled to zero"));
    }
    let count = |of: &Value| of.as_i64().unwrap_or(0);
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

    fn with_status(replicas: i32, status: Value) -> DynamicObject {
        let mut deployment = deployment("a-heaven", (HEAVEN, "a"), replicas, json!({}), &[]);
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
            let state = available(&with_status(replicas, status));
            assert_eq!((state.is, state.reason.as_str()), expected);
        }
    }

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

    #[test]
    fn a_long_name_makes_a_short_label_of_its_own() {
        let [one, other] = ["b", "c"].map(|end| label_value(&format!("{}{end}", "a".repeat(80))));
        assert_eq!((one.len(), other.len()), (63, 63));
        assert_ne!(one, other);
        assert_eq!(label_value("short"), "short");
    }
}

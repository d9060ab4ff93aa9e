//! The objects that run a plan's pods, as JSON, so that fields of newer Kubernetes versions survive.
//!
//! A [`Workload`] is a kind of such objects. [`Deployments`], [`StatefulSets`], [`DaemonSets`] and [`Jobs`] implement it, and
//! other crates can implement it for further kinds.

mod daemon_set;
mod deployment;
mod job;
mod state;
mod stateful_set;

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, ObjectMeta, TypeMeta};
use serde_json::{Map, Value, json};
use trishanku_framework::cache::Cache;
use trishanku_framework::{Key, Kind};

pub use self::daemon_set::DaemonSets;
pub use self::deployment::Deployments;
pub use self::job::Jobs;
pub use self::state::{State, set};
pub use self::stateful_set::StatefulSets;
use crate::plan::ENCRYPTION;

/// Label of the pods of a `TrishankuHeaven`.
pub const HEAVEN: &str = "controllers.trishanku.org/heaven";
/// Label of the pods of an `AutomatedMerge`.
pub const MERGE: &str = "controllers.trishanku.org/automated-merge";

/// A kind of objects that run pods from a template.
///
/// The objects must never run two pods with one branch at the same time, unless a writer lease decides between them.
pub trait Workload: Send + Sync + 'static {
    /// Whether several pods run at the same time.
    const REPLICAS: Replicas = Replicas::One;

    /// Returns the kind.
    fn resource() -> ApiResource;

    /// Returns the `spec` of the object for these pods, for server-side apply.
    fn spec(pods: Pods<'_>) -> Value;

    /// Returns the state of the pods, according to the status for the present generation of the object.
    fn state(object: &DynamicObject) -> State;

    /// Returns the `spec` of a merge patch that stops all pods, or `None` if the object does not run any.
    fn stop(object: &DynamicObject) -> Option<Value>;

    /// Returns the `spec` of a merge patch that removes fields by other managers, with which the object cannot be applied.
    /// Server-side apply cannot remove fields that it does not own.
    /// `replicas` is that of the pods that are to run.
    fn remove_conflicting_fields(object: &DynamicObject, replicas: i32) -> Option<Value> {
        let _ = (object, replicas);
        None
    }

    /// Whether an object runs its pods once, from a template that cannot be changed. It is created once for each generation of
    /// the heaven, and then left alone: another certificate or default image must not run it again.
    const RUNS_ONCE: bool = false;

    /// Returns the template of the pods.
    fn template(object: &DynamicObject) -> &Value {
        &object.data["spec"]["template"]
    }

    /// Returns the kind for caches: untyped, with all fields.
    fn kind() -> Kind<DynamicObject> {
        Kind::new(Self::resource(), true)
    }
}

/// Whether several pods of a template run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// One pod at a time, with one branch; or several pods with a writer lease.
    One,
    /// Several pods, with a branch each.
    Named {
        /// The field of a pod that names its replica: different from that of each other pod at the same time, and the same
        /// for a pod and its successor if the successor continues with the branch. In branch names, it replaces
        /// [`REPLICA`](crate::plan::REPLICA).
        field: &'static str,
        /// Whether each replica can have a volume claim of its own ([`Pods::claim`]).
        has_claims: bool,
    },
}

impl Replicas {
    /// Returns the field of a pod that names its replica.
    pub fn field(self) -> Option<&'static str> {
        match self {
            Self::One => None,
            Self::Named { field, .. } => Some(field),
        }
    }
}

/// The desired pods of a workload.
pub struct Pods<'a> {
    /// The label that selects them, with its value; their template gets it.
    pub selector: (&'a str, &'a str),
    /// The number of pods, if the kind of workload has one. Zero stops all pods of every kind.
    pub replicas: i32,
    /// Their template.
    pub template: Value,
    /// The template of the claims that replicas have, one each, for the volume with the claim's name.
    pub claim: Option<PersistentVolumeClaim>,
}

impl Pods<'_> {
    fn selector(&self) -> Value {
        let (label, value) = self.selector;
        json!({label: value})
    }
}

/// Returns the object that runs pods. `pods.template` gets the labels of the selector, and `annotations`.
pub fn object<W: Workload>(name: &str, mut pods: Pods<'_>, annotations: &[(&str, &str)]) -> DynamicObject {
    let (label, value) = pods.selector;
    for (field, values) in [("labels", &[pods.selector][..]), ("annotations", annotations)] {
        let there = entry(entry(&mut pods.template, "metadata"), field);
        for (key, value) in values {
            there[*key] = (*value).into();
        }
    }
    let ApiResource { api_version, kind, .. } = W::resource();
    let labels = Some([(label.to_owned(), value.to_owned())].into());
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
    let data = json!({"spec": W::spec(pods)});
    DynamicObject { types: Some(TypeMeta { api_version, kind }), metadata, data }
}

/// Removes fields by other managers that would make the apply fail.
///
/// # Errors
/// The error of the API server. A concurrent change is not an error: the watch reports it.
pub async fn remove_conflicting_fields<W: Workload>(
    client: &Client,
    cache: &Cache<DynamicObject>,
    key: &Key,
    owner: Option<&str>,
    replicas: i32,
) -> Result<(), kube::Error> {
    let Some(present) = ours(cache, key, owner) else { return Ok(()) };
    let Some(spec) = W::remove_conflicting_fields(&present, replicas) else { return Ok(()) };
    let metadata = json!({"uid": present.metadata.uid, "resourceVersion": present.metadata.resource_version});
    change(client, cache, key, json!({"metadata": metadata, "spec": spec})).await
}

/// Stops the pods of an owner, whatever else is wrong with it. The next apply starts them again.
///
/// # Errors
/// The error of the API server.
pub async fn stop<W: Workload>(
    client: &Client,
    cache: &Cache<DynamicObject>,
    key: &Key,
    owner: Option<&str>,
) -> Result<(), kube::Error> {
    let Some(present) = ours(cache, key, owner) else { return Ok(()) };
    let Some(spec) = W::stop(&present) else { return Ok(()) };
    change(client, cache, key, json!({"metadata": {"uid": present.metadata.uid}, "spec": spec})).await
}

/// Returns the Secret with the encryption configuration that the kube-apiserver of a workload uses, if it uses one.
pub fn encryption_secret<W: Workload>(object: &DynamicObject) -> Option<String> {
    let volumes = W::template(object)["spec"]["volumes"].as_array()?;
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

/// Patches an object. A concurrent change is not an error: the watch reports it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_makes_a_short_label_of_its_own() {
        let [one, other] = ["b", "c"].map(|end| label_value(&format!("{}{end}", "a".repeat(80))));
        assert_eq!((one.len(), other.len()), (63, 63));
        assert_ne!(one, other);
        assert_eq!(label_value("short"), "short");
    }

    #[test]
    fn a_template_keeps_its_own_labels_and_annotations() {
        let template = json!({"metadata": {"labels": {"app": "web"}, "annotations": null}, "spec": {"containers": []}});
        let pods = Pods { selector: (HEAVEN, "a"), replicas: 1, template, claim: None };
        let object = object::<Deployments>("a-heaven", pods, &[("note", "1")]);
        let metadata = &object.data["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"], json!({"app": "web", HEAVEN: "a"}));
        assert_eq!(metadata["annotations"], json!({"note": "1"}));
        assert_eq!(object.metadata.labels.unwrap()[HEAVEN], "a");
    }
}

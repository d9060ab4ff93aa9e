//! Converts manifests to pods.

use serde_json::{Value, json};
use trishanku_api::{AutomatedMergeSpec, TrishankuHeavenSpec};
use trishanku_heaven_plan::plan::{EntryPoints, Images, Place, Plan, heaven, host_port, merge};
use trishanku_heaven_plan::{HeavenParts, pod};

/// Images that do not change with releases.
pub(crate) fn images() -> Images {
    let image = |name: &str| format!("images.example.org/{name}:1");
    Images { etcd: image("etcd"), git: image("git"), gitcd: image("gitcd"), apiserver: image("kube-apiserver") }
}

/// The entry points that are created by default.
pub(crate) const MADE: EntryPoints = EntryPoints { git_pre: false, gitcd_config: true };

pub(crate) fn manifests(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

pub(crate) fn manifest(text: &str, kind: &str, name: &str) -> Value {
    let found = manifests(text).into_iter().find(|found| found["kind"] == kind && found["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))["spec"].clone()
}

pub(crate) fn plan_of(name: &str, spec: &Value, entry_points: &EntryPoints) -> Result<Plan, String> {
    let spec: TrishankuHeavenSpec = serde_json::from_value(spec.clone()).unwrap();
    let users = spec.app.as_ref().map_or(json!({}), |app| app.pod_template.clone());
    let parts = HeavenParts::of_spec(name, &spec);
    let place = Place::pod().with_ports(
        pod::ports(&users, host_port(&parts).map_err(|error| error.to_string())?).map_err(|error| error.to_string())?,
    );
    heaven(&parts, &images(), &place, entry_points).map_err(|error| error.to_string())
}

/// Renders the pod template of a heaven.
pub(crate) fn try_heaven(spec: &Value, entry_points: &EntryPoints) -> Result<Value, String> {
    let plan = plan_of("a", spec, entry_points)?;
    pod::render(&plan, &spec["app"]["podTemplate"]).map_err(|error| error.to_string())
}

pub(crate) fn heaven_pod(spec: &Value) -> Value {
    try_heaven(spec, &MADE).unwrap()
}

pub(crate) fn merge_pod(spec: &Value) -> Value {
    let spec: AutomatedMergeSpec = serde_json::from_value(spec.clone()).unwrap();
    let plan = merge("a", &spec, &images(), &Place::pod(), &MADE).unwrap();
    pod::render(&plan, &json!({})).unwrap()
}

/// Finds a container in any list.
pub(crate) fn container<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let lists =
        ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().map_or(&[][..], Vec::as_slice));
    let found = lists.into_iter().flatten().find(|container| container["name"] == name);
    found.unwrap_or_else(|| panic!("there is no container {name}: {pod}"))
}

/// The value of a flag or an environment variable.
pub(crate) fn flag<'p>(container: &'p Value, name: &str) -> Option<&'p str> {
    let arguments = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let flag = format!("--{name}=");
    arguments.into_iter().find_map(|argument| argument.strip_prefix(flag.as_str())).or_else(|| {
        let mut variables = container["env"].as_array().into_iter().flatten();
        variables.find(|variable| variable["name"] == name).and_then(|variable| variable["value"].as_str())
    })
}

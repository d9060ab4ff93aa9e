//! What a plan does with objects of all kinds.

mod deletions;
mod steps;

use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::SecretKinds;
use serde_json::{Value, json};
use trishanku_undo::{Change, Live, Mode, Plan, Planner, Step, Subject};

fn plan_with(live: &Live, subjects: Vec<Subject>, mode: Mode) -> Plan {
    Planner { schemas: &Schemas::builtin(), secrets: &SecretKinds::default(), live }.plan(subjects, mode)
}

fn plan(subjects: Vec<Subject>, mode: Mode) -> Plan {
    plan_with(&Live::default(), subjects, mode)
}

/// The only step of an undo of one change.
fn undo(key: &str, [before, after, current]: [Option<Value>; 3]) -> Step {
    let subject = Subject::new(key, current, vec![Change { before, after }]);
    plan(vec![subject], Mode::Undo).steps.remove(0)
}

fn object(api_version: &str, kind: &str, name: &str, uid: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    for (name, value) in more.as_object().expect("a map") {
        if let (Some(own), Some(more)) = (object[name].as_object_mut(), value.as_object()) {
            own.extend(more.clone());
        } else {
            object[name] = value.clone();
        }
    }
    object
}

fn map(uid: &str, tea: &str) -> Value {
    object("v1", "ConfigMap", "prices", uid, &json!({"data": {"tea": tea}}))
}

/// An edit by a program, as in `managedFields`.
fn edited(mut object: Value, manager: &str, time: &str) -> Value {
    let entry = json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": {"f:data": {}}});
    object["metadata"]["managedFields"] = json!([entry]);
    object
}

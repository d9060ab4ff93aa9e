//! Templates as JSON, with unknown fields.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use trishanku_framework::inject::{InjectError, Injector, JsonError, SecretRef, Users, inject_json};

/// A pod with most of the fields that an injection extends: variables, mounts, init containers, pull secrets.
fn users() -> Value {
    json!({
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "initContainers": [{"name": "migrate", "image": "m:1", "env": [{"name": "LEVEL", "value": "3"}]}],
            "containers": [
                {"name": "app", "image": "app:1", "ports": [{"containerPort": 8080}],
                 "volumeMounts": [{"name": "configs", "mountPath": "/configs"}, {"name": "tmp", "mountPath": "/tmp/x"}]},
                {"name": "helper", "image": "h:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                 "resources": {"limits": {"cpu": "1000m"}}, "livenessProbe": {"httpGet": {"port": 8081, "path": "/"}}},
            ],
            "volumes": [{"name": "configs", "configMap": {"name": "c"}}, {"name": "tmp", "emptyDir": {}}],
            "imagePullSecrets": [{"name": "mine"}],
            "securityContext": {"fsGroup": 5},
        },
    })
}

fn heaven(injector: Injector) -> Injector {
    injector.with(|pod| {
        let volume = pod.volume("certificates", SecretRef::named("certificates").files());
        let prepared = pod.init("prepare", "p:1").mount(&volume, "/certificates").add();
        pod.sidecar("server", "s:1").env("X", "y").after(&prepared).add();
        pod.container("watcher", "w:1").add();
        let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig"));
        pod.give_kubeconfig(Users::All, &kubeconfig.as_file("/kubeconfig"));
        pod.pull_with(&SecretRef::named("registry"));
    })
}

/// Collects the paths of objects that are not maps of strings.
fn objects(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        // Maps of strings.
        Value::Object(_) if ["/metadata/annotations", "/limits"].iter().any(|map| path.ends_with(map)) => {}
        Value::Object(fields) => {
            found.push(path.to_owned());
            fields.iter().for_each(|(field, value)| objects(value, &format!("{path}/{field}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| objects(value, &format!("{path}/{at}"), found));
        }
        _ => {}
    }
}

/// Removes the unknown fields, and collects each with the names of the objects around it.
fn taken_out(value: &mut Value, around: &str, found: &mut Vec<(String, String, Value)>) {
    match value {
        Value::Object(fields) => {
            let called =
                ["mountPath", "name"].iter().find_map(|field| fields.get(*field)?.as_str().map(ToOwned::to_owned));
            let around = called.map_or(around.to_owned(), |name| format!("{around}/{name}"));
            let unknown: Vec<String> = fields.keys().filter(|field| field.starts_with("unknown")).cloned().collect();
            for field in unknown {
                let value = fields.remove(&field).unwrap();
                found.push((around.clone(), field, value));
            }
            for (field, value) in fields.iter_mut() {
                taken_out(value, &format!("{around}/{field}"), found);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|value| taken_out(value, around, found)),
        _ => {}
    }
}

fn anything() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
        Just(json!({"name": "app", "nested": [{"mountPath": "/x"}, 1]})),
        Just(json!([])),
    ]
}

proptest! {
    #[test]
    fn unknown_fields_are_preserved(additions in vec((any::<prop::sample::Index>(), anything()), 0..12)) {
        let mut template = users();
        let mut places = Vec::new();
        objects(&template, "", &mut places);
        for (at, (place, value)) in additions.iter().enumerate() {
            let object = template.pointer_mut(place.get(&places[..]).as_str()).unwrap();
            object[format!("unknown{at}")] = value.clone();
        }
        let mut expected = Vec::new();
        taken_out(&mut template.clone(), "", &mut expected);
        let mut injected = inject_json(&template, heaven).unwrap();
        prop_assert_eq!(&inject_json(&injected, heaven).unwrap(), &injected, "injecting twice equals injecting once");
        let mut found = Vec::new();
        taken_out(&mut injected, "", &mut found);
        found.sort_by(|one, other| one.1.cmp(&other.1));
        expected.sort_by(|one, other| one.1.cmp(&other.1));
        prop_assert_eq!(found, expected);
        prop_assert_eq!(injected, inject_json(&users(), heaven).unwrap(), "nothing else differs");
    }
}

#[test]
fn what_the_types_know_becomes_what_they_make_of_it() {
    // Encoded from Rust's types, which include empty fields.
    let users: Value =
        serde_json::to_value(serde_json::from_value::<k8s_openapi::api::core::v1::PodTemplateSpec>(users()).unwrap())
            .unwrap();
    let expected = heaven(Injector::new(serde_json::from_value(users.clone()).unwrap())).finish().unwrap();
    assert_eq!(inject_json(&users, heaven).unwrap(), serde_json::to_value(expected).unwrap());
}

#[test]
fn an_empty_template_and_one_that_is_none() {
    for empty in [json!({}), json!({"spec": {}}), json!({"spec": {"initContainers": null, "ofTomorrow": 1}})] {
        let injected = inject_json(&empty, heaven).unwrap();
        assert_eq!(injected["spec"]["initContainers"][1]["name"], "server", "{injected}");
        assert_eq!(injected["spec"].get("ofTomorrow"), empty["spec"].get("ofTomorrow"));
    }
    let wrong = inject_json(&json!({"spec": {"containers": [{"name": 1}]}}), heaven).unwrap_err();
    assert!(matches!(wrong, JsonError::Template(_)) && wrong.to_string().contains("not a pod template"), "{wrong}");
    let taken = json!({"spec": {"containers": [{"name": "watcher", "image": "other:1"}]}});
    let collision = inject_json(&taken, heaven).unwrap_err();
    assert!(
        matches!(collision, JsonError::Inject(InjectError { .. })) && collision.to_string().contains("watcher"),
        "{collision}"
    );
}

#[test]
fn a_kubeconfig_can_be_mounted_without_a_variable() {
    let mounted = |injector: Injector| {
        injector.with(|pod| {
            let kubeconfig = pod.kubeconfig("kubeconfig", SecretRef::named("app").key("kubeconfig"));
            pod.mount_kubeconfig(Users::named(["app"]), &kubeconfig.as_file("/kubeconfig"));
        })
    };
    let mut template = users();
    template["spec"]["containers"][0]["env"] = json!([{"name": "KUBECONFIG", "value": "/elsewhere"}]);
    let injected = inject_json(&template, mounted).unwrap();
    assert_eq!(injected["spec"]["containers"][0]["env"], template["spec"]["containers"][0]["env"]);
    let mount = json!({"name": "kubeconfig", "mountPath": "/kubeconfig", "subPath": "kubeconfig", "readOnly": true});
    assert_eq!(injected["spec"]["containers"][0]["volumeMounts"][2], mount);
    assert_eq!(injected["spec"]["containers"][1], template["spec"]["containers"][1]);
}

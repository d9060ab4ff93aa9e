//! List items and map keys from two writers.

use proptest::prelude::*;
use std::collections::HashMap;

use serde_json::{Value as Json, json};

use crate::schema::Schemas;
use crate::tests::{both_ways, clean, edited, result};
use crate::{Outcome, Policy, Side, merge};

fn service(ports: &Json) -> Json {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "uid": "u"}, "spec": {"ports": ports}})
}

fn pod(container: &Json) -> Json {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "spec": {"containers": [container]}})
}

#[test]
fn a_port_without_a_protocol_is_the_one_with_tcp() {
    let base = service(&json!([{"port": 80}, {"port": 53, "protocol": "UDP"}]));
    let one = service(&json!([{"port": 80, "name": "web"}, {"port": 53, "protocol": "UDP"}]));
    let other = service(&json!([
        {"port": 80, "protocol": "TCP", "targetPort": 8080}, {"port": 53, "protocol": "UDP"}, {"port": 53}
    ]));
    assert_eq!(
        clean(&base, &one, &other)["spec"]["ports"],
        json!([
            {"port": 80, "name": "web", "protocol": "TCP", "targetPort": 8080},
            {"port": 53, "protocol": "UDP"}, {"port": 53},
        ])
    );
    for spelled in [json!(null), json!("")] {
        let other =
            service(&json!([{"port": 80, "protocol": spelled}, {"port": 53, "protocol": "UDP", "name": "dns"}]));
        let ports = &clean(&base, &one, &other)["spec"]["ports"];
        assert_eq!(ports.as_array().map(Vec::len), Some(2), "{ports}");
    }
    let container = |ports: Json| pod(&json!({"name": "c", "ports": ports}));
    let merged = clean(
        &container(json!([{"containerPort": 80}])),
        &container(json!([{"containerPort": 80, "protocol": "TCP"}])),
        &container(json!([{"containerPort": 80, "name": "web"}])),
    );
    assert_eq!(
        merged["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 80, "name": "web", "protocol": "TCP"}])
    );
}

#[test]
fn defaults_of_keys_in_definitions_are_known() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gates.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Gate"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {"doors": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["number", "side"],
                "items": {"type": "object", "properties": {
                    "number": {"type": "integer"}, "side": {"type": "string", "default": "left"}, "note": {"type": "string"},
                    "lock": {"type": "string"},
                }},
            }}}},
        }}}]},
    });
    let (schemas, problems) = Schemas::builtin().with_crds([&definition]);
    assert_eq!(problems, Vec::<String>::new());
    let gate = |doors: Json| {
        json!({"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "a", "uid": "u"}, "spec": {"doors": doors}})
            .to_string()
            .into_bytes()
    };
    let base = gate(json!([{"number": 1}]));
    let one = gate(json!([{"number": 1, "side": "left", "note": "x"}]));
    let other = gate(json!([{"number": 1, "lock": "y"}, {"number": 1, "side": "right"}]));
    let merged = merge(&schemas, Policy::Later, Some(&base), Some(Side::of(&one)), Some(Side::of(&other)));
    assert_eq!(merged.conflicts, []);
    let Outcome::New(value) = merged.outcome else { panic!("{merged:?}") };
    let value: Json = serde_json::from_slice(&value).expect("JSON");
    let mut doors = value["spec"]["doors"].as_array().expect("a list").clone();
    doors.sort_by_key(|door| door["side"] == "right");
    assert_eq!(
        doors,
        [json!({"number": 1, "side": "left", "note": "x", "lock": "y"}), json!({"number": 1, "side": "right"})]
    );
}

#[test]
fn a_list_with_a_name_twice_loses_no_item_that_a_side_added() {
    let env = |env: Json| pod(&json!({"name": "c", "env": env}));
    let x = |value: &str| json!({"name": "X", "value": value});
    let y = json!({"name": "Y", "value": "y"});
    for (base, one, other, expected) in [
        (
            json!([x("1"), x("2")]),
            json!([x("1"), x("2"), x("3")]),
            json!([x("1"), x("2"), y]),
            json!([x("1"), x("2"), x("3"), y]),
        ),
        (json!([]), json!([x("1"), x("2")]), json!([y]), json!([x("1"), x("2"), y])),
        (
            json!([x("1"), x("1")]),
            json!([x("1"), x("1"), x("1")]),
            json!([x("1"), x("1"), y]),
            json!([x("1"), x("1"), x("1"), y]),
        ),
        (json!([x("1")]), json!([x("1"), x("2")]), json!([x("1"), x("3")]), json!([x("1"), x("2"), x("3")])),
        (json!([x("1"), x("2")]), json!([x("2")]), json!([x("1"), x("2"), y]), json!([x("2"), y])),
    ] {
        let merged = clean(&env(base), &env(one), &env(other));
        let mut found = merged["spec"]["containers"][0]["env"].as_array().expect("a list").clone();
        found.sort_by_key(Json::to_string);
        assert_eq!(Json::from(found), expected);
    }
    // The same for an unknown kind.
    let unknown = |items: Json| json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "a"}, "items": items});
    let merged = clean(
        &unknown(json!([x("1"), x("2")])),
        &unknown(json!([x("1"), x("2"), x("3")])),
        &unknown(json!([x("1"), x("2"), y])),
    );
    assert_eq!(merged["items"].as_array().map(Vec::len), Some(4), "{merged}");
    let finalizers = |list: Json| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u", "finalizers": list}});
    let merged =
        clean(&finalizers(json!(["a", "a"])), &finalizers(json!(["a", "a", "b"])), &finalizers(json!(["a", "a", "c"])));
    assert_eq!(merged["metadata"]["finalizers"].as_array().map(Vec::len), Some(4), "{merged}");
}

#[test]
fn a_key_is_in_one_of_the_maps_that_may_not_share_it() {
    let map = |data: Json, binary: Json| {
        let mut map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}, "data": data});
        if binary != Json::Null {
            map["binaryData"] = binary;
        }
        map
    };
    let base = map(json!({"a": "1"}), Json::Null);
    let one = map(json!({"a": "1", "key": "text", "b": "2"}), Json::Null);
    let other = map(json!({"a": "1"}), json!({"key": "AAEC", "c": "AAEC"}));
    let merged = both_ways(Policy::Later, &base, &one, &other);
    assert_eq!(merged.conflicts.len(), 1);
    let value = result(&merged);
    assert!(value["data"]["key"].is_string() != value["binaryData"]["key"].is_string(), "{value}");
    assert_eq!((&value["data"]["b"], &value["binaryData"]["c"]), (&json!("2"), &json!("AAEC")));
    let merged = both_ways(Policy::Ours, &base, &one, &other);
    assert_eq!(result(&merged)["data"]["key"], "text");
    assert_eq!(merged.conflicts[0].field, "data.key");
    assert_eq!(
        (merged.conflicts[0].kept.as_deref(), merged.conflicts[0].lost.as_deref()),
        (Some("\"text\""), Some("\"AAEC\""))
    );
    // The later writer wins, by managedFields.
    let written = |value: &Json, time: &str, field: &str| {
        edited(value, |value| {
            value["metadata"]["managedFields"] =
                json!([{"manager": time, "time": time, "fieldsV1": {field: {"f:key": {}}}}]);
        })
    };
    let one = written(&one, "2026-01-02T00:00:00Z", "f:data");
    let other = written(&other, "2026-01-01T00:00:00Z", "f:binaryData");
    assert_eq!(result(&both_ways(Policy::Later, &base, &one, &other))["data"]["key"], "text");
}

#[test]
fn containers_and_volumes_of_one_name_are_in_one_list() {
    let spec =
        |spec: Json| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "spec": spec});
    let base = spec(json!({"containers": [{"name": "c"}]}));
    let one = spec(json!({"containers": [{"name": "c"}, {"name": "log", "image": "a"}]}));
    let other = spec(json!({"containers": [{"name": "c"}], "initContainers": [{"name": "log", "image": "b"}]}));
    let merged = both_ways(Policy::Later, &base, &one, &other);
    let text = result(&merged)["spec"].to_string();
    assert_eq!(text.matches("\"log\"").count(), 1, "{text}");
    assert_eq!(merged.conflicts.len(), 1);
    let mounts = |mounts: Json| pod(&edited(&mounts, |container| container["name"] = json!("c")));
    let merged = both_ways(
        Policy::Theirs,
        &mounts(json!({})),
        &mounts(json!({"volumeMounts": [{"name": "v", "mountPath": "/a"}]})),
        &mounts(json!({"volumeDevices": [{"name": "v", "devicePath": "/a"}, {"name": "v", "devicePath": "/b"}]})),
    );
    let container = &result(&merged)["spec"]["containers"][0];
    assert_eq!(container["volumeDevices"].as_array().map(Vec::len), Some(2));
    assert_eq!(container.get("volumeMounts"), None);
    assert_eq!(merged.conflicts[0].field, "spec.containers[name=c].volumeDevices[devicePath=/a]");
}

#[test]
fn what_is_switched_off_excludes_nothing() {
    let spec =
        |spec: Json| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "u"}, "spec": spec});
    let merged =
        clean(&spec(json!({})), &spec(json!({"hostPID": false})), &spec(json!({"shareProcessNamespace": true})));
    assert_eq!(merged["spec"]["shareProcessNamespace"], true);
    let merged = both_ways(
        Policy::Theirs,
        &spec(json!({})),
        &spec(json!({"hostPID": true})),
        &spec(json!({"shareProcessNamespace": true})),
    );
    assert_eq!(result(&merged)["spec"], json!({"shareProcessNamespace": true}));
}

/// Lists of environment variables, with duplicate names.
fn env() -> impl Strategy<Value = Json> {
    proptest::collection::vec(("[XYZ]", "[12]"), 0..5)
        .prop_map(|env| env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect())
}

proptest! {
    #[test]
    fn no_item_is_lost_that_one_side_added_whatever_is_there_twice(base in env(), one in env(), other in env()) {
        let pod = |env: &Json| pod(&json!({"name": "c", "env": env}));
        let merged = both_ways(Policy::Later, &pod(&base), &pod(&one), &pod(&other));
        let Outcome::New(value) = &merged.outcome else { return Ok(()) };
        let value: Json = serde_json::from_slice(value).expect("JSON");
        let found = value["spec"]["containers"][0]["env"].as_array().cloned().unwrap_or_default();
        let count = |list: &Json, name: &Json| list.as_array().into_iter().flatten().filter(|item| item["name"] == *name).count();
        for side in [&one, &other] {
            for item in side.as_array().into_iter().flatten() {
                let is_new = count(&base, &item["name"]) == 0;
                let is_alone = [&one, &other].into_iter().any(|side| count(side, &item["name"]) == 0);
                let is_twice = [&one, &other].into_iter().any(|side| count(side, &item["name"]) > 1);
                prop_assert!(!is_new || !(is_alone || is_twice) || found.contains(item), "{} of {} {} {}", item, base, one, other);
            }
        }
    }
}

#[test]
fn bounds_that_a_definition_sets_hold_for_what_both_sides_make() {
    let list = |kind: &str| json!({"type": "array", "x-kubernetes-list-type": kind, "minItems": 1, "maxItems": 3, "items": {"type": "string"}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gates.example.com"},
        "spec": {"group": "example.com", "names": {"kind": "Gate"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {
                "keys": list("set"),
                "labels": {"type": "object", "minProperties": 1, "maxProperties": 3, "additionalProperties": {"type": "string"}},
            }}},
        }}}]},
    });
    let (schemas, problems) = Schemas::builtin().with_crds([&definition]);
    assert_eq!(problems, Vec::<String>::new());
    let keys = |keys: &[&str]| json!({"keys": keys});
    let labels =
        |labels: &[&str]| json!({"labels": labels.iter().map(|label| (*label, "")).collect::<HashMap<_, _>>()});
    for of in [&keys as &dyn Fn(&[&str]) -> Json, &labels] {
        for (base, one, other, expected) in [
            // Nothing would be left, or four items.
            (of(&["a", "b"]), of(&["a"]), of(&["b"]), None),
            (of(&["a", "b"]), of(&["a", "b", "c"]), of(&["a", "b", "d"]), None),
            // The result has a valid size.
            (of(&["a"]), of(&["a", "b"]), of(&["a", "c"]), Some(of(&["a", "b", "c"]))),
            // A side was invalid before.
            (
                of(&["a", "b", "c", "d"]),
                of(&["a", "b", "c", "d", "e"]),
                of(&["b", "c", "d"]),
                Some(of(&["b", "c", "d", "e"])),
            ),
            // An absent list is valid.
            (of(&["a", "b"]), json!({}), of(&["b"]), Some(json!({}))),
        ] {
            let gate = |spec: &Json| {
                json!({"apiVersion": "example.com/v1", "kind": "Gate", "metadata": {"name": "a", "uid": "u"}, "spec": spec})
                    .to_string()
                    .into_bytes()
            };
            let run = |one: &Json, other: &Json| {
                let (base, one, other) = (gate(&base), gate(one), gate(other));
                let merged = merge(&schemas, Policy::Later, Some(&base), Some(Side::of(&one)), Some(Side::of(&other)));
                let value = match &merged.outcome {
                    Outcome::New(value) => value,
                    Outcome::Ours => &one,
                    _ => &other,
                };
                let mut value: Json = serde_json::from_slice(value).expect("JSON");
                if let Some(keys) = value.pointer_mut("/spec/keys").and_then(Json::as_array_mut) {
                    keys.sort_by_key(Json::to_string);
                }
                (value["spec"].clone(), merged.conflicts.len())
            };
            let (spec, conflicts) = run(&one, &other);
            assert_eq!(run(&other, &one), (spec.clone(), conflicts), "the same with the sides swapped");
            if let Some(expected) = expected {
                assert_eq!((spec, conflicts), (expected, 0), "{base} {one} {other}");
            } else {
                assert!([&one, &other].contains(&&spec), "{spec} of {one} and {other}");
                assert_eq!(conflicts, 1, "{base} {one} {other}");
            }
        }
    }
}

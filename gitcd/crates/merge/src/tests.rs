//! Merges of objects as Kubernetes stores them.

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::schema::Schemas;
use super::{Conflict, Merged, Outcome, Policy, Side, merge};

mod deletions;
mod pods;
mod related;

pub(super) fn both_ways(policy: Policy, base: &Json, one: &Json, other: &Json) -> Merged {
    let [base, one, other] = [base, one, other].map(|value| match value {
        Json::Null => None,
        value => Some(value.to_string() + "\n"),
    });
    let base = base.as_deref().map(str::as_bytes);
    let side = |value: &'_ Option<String>| value.clone();
    let (ours, theirs) = (side(&one), side(&other));
    let sides = |value: &Option<String>| value.as_ref().map(|value| value.clone().into_bytes());
    let (ours, theirs) = (sides(&ours), sides(&theirs));
    let schemas = Schemas::builtin();
    let run = |policy, ours: &Option<Vec<u8>>, theirs: &Option<Vec<u8>>| {
        merge(&schemas, policy, base, ours.as_deref().map(Side::of), theirs.as_deref().map(Side::of))
    };
    let merged = run(policy, &ours, &theirs);
    // The other branch, with the complementary policy, gets the same result.
    let swapped = run(
        match policy {
            Policy::Later => Policy::Later,
            Policy::Ours => Policy::Theirs,
            Policy::Theirs => Policy::Ours,
        },
        &theirs,
        &ours,
    );
    let result = |merged: &Merged, ours: &Option<Vec<u8>>, theirs: &Option<Vec<u8>>| match &merged.outcome {
        Outcome::Ours => ours.clone(),
        Outcome::Theirs => theirs.clone(),
        Outcome::Deleted => None,
        Outcome::New(value) => Some(value.clone()),
    };
    assert_eq!(result(&merged, &ours, &theirs), result(&swapped, &theirs, &ours), "swapping the sides does not matter");
    assert_eq!(merged.conflicts, swapped.conflicts);
    let value = result(&merged, &ours, &theirs);
    let outcome = value.map_or(Outcome::Deleted, Outcome::New);
    Merged { outcome, conflicts: merged.conflicts }
}

pub(super) fn result(merged: &Merged) -> Json {
    match &merged.outcome {
        Outcome::New(value) => serde_json::from_slice(value).expect("a merge writes JSON"),
        Outcome::Deleted => Json::Null,
        outcome => panic!("{outcome:?}"),
    }
}

/// Merges without a conflict.
pub(super) fn clean(base: &Json, one: &Json, other: &Json) -> Json {
    let merged = both_ways(Policy::Later, base, one, other);
    assert_eq!(merged.conflicts, []);
    result(&merged)
}

pub(super) fn edited(object: &Json, edit: impl FnOnce(&mut Json)) -> Json {
    let mut object = object.clone();
    edit(&mut object);
    object
}

fn pod() -> Json {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "labels": {"app": "web"},
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "r1"}],
            "finalizers": ["a.example.org/x"]},
        "spec": {
            "containers": [
                {"name": "web", "image": "nginx:1", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80, "protocol": "TCP"}]},
                {"name": "side", "image": "side:1"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
            "nodeSelector": {"disk": "ssd"}},
        "status": {"phase": "Pending", "conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    })
}

#[test]
fn labels_containers_env_finalizers_and_owners_of_two_writers_survive() {
    let base = pod();
    let one = edited(&base, |pod| {
        pod["metadata"]["labels"]["tier"] = "front".into();
        pod["spec"]["containers"][0]["image"] = "nginx:2".into();
        pod["spec"]["containers"][0]["env"].as_array_mut().unwrap().push(json!({"name": "B", "value": "2"}));
        pod["metadata"]["finalizers"].as_array_mut().unwrap().push("b.example.org/y".into());
        pod["status"]["conditions"][0]["status"] = "True".into();
    });
    let other = edited(&base, |pod| {
        pod["metadata"]["annotations"] = json!({"note": "x"});
        pod["spec"]["containers"][0]["env"][0]["value"] = "11".into();
        pod["spec"]["containers"][1]["image"] = "side:2".into();
        pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "more", "image": "more:1"}));
        pod["metadata"]["finalizers"] = json!([]);
        pod["metadata"]["ownerReferences"]
            .as_array_mut()
            .unwrap()
            .push(json!({"kind": "Job", "name": "j", "uid": "j1"}));
        pod["status"]["conditions"][1]["status"] = "True".into();
        pod["spec"]["nodeName"] = "n1".into();
    });
    let merged = clean(&base, &one, &other);
    let expected = edited(&base, |pod| {
        pod["metadata"]["labels"]["tier"] = "front".into();
        pod["metadata"]["annotations"] = json!({"note": "x"});
        pod["metadata"]["finalizers"] = json!(["b.example.org/y"]);
        pod["metadata"]["ownerReferences"] = other["metadata"]["ownerReferences"].clone();
        pod["spec"]["containers"] = json!([
            {"name": "web", "image": "nginx:2", "env": [{"name": "A", "value": "11"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "side", "image": "side:2"}, {"name": "more", "image": "more:1"}]);
        pod["spec"]["nodeName"] = "n1".into();
        pod["status"]["conditions"][0]["status"] = "True".into();
        pod["status"]["conditions"][1]["status"] = "True".into();
    });
    assert_eq!(merged, expected);
}

#[test]
fn a_field_that_both_changed_is_that_of_the_later_writer_and_the_other_is_reported() {
    let managed = |time: &str| {
        json!([{"manager": "m", "operation": "Update", "apiVersion": "apps/v1", "time": time,
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}])
    };
    let base = json!({"kind": "Deployment", "apiVersion": "apps/v1",
        "metadata": {"name": "d", "uid": "u", "generation": 1, "managedFields": managed("2026-01-01T00:00:00Z")},
        "spec": {"replicas": 1, "paused": false}});
    let version = |replicas: i32, time: &str| {
        edited(&base, |object| {
            object["spec"]["replicas"] = replicas.into();
            object["metadata"]["managedFields"] = managed(time);
            object["metadata"]["generation"] = 2.into();
        })
    };
    for (first, second, winner) in [("05", "07", 3), ("07", "05", 2)] {
        let (one, other) =
            (version(2, &format!("2026-01-{first}T00:00:00Z")), version(3, &format!("2026-01-{second}T00:00:00Z")));
        let merged = both_ways(Policy::Later, &base, &one, &other);
        assert_eq!(result(&merged)["spec"]["replicas"], winner);
        let (kept, lost) = if winner == 3 { ("3", "2") } else { ("2", "3") };
        let conflict = Conflict { field: "spec.replicas".into(), kept: Some(kept.into()), lost: Some(lost.into()) };
        assert_eq!(merged.conflicts, [conflict]);
        assert_eq!(result(&merged)["metadata"]["managedFields"][0]["time"], "2026-01-07T00:00:00Z");
        assert_eq!(result(&merged)["metadata"]["generation"], 3, "the other side has used 2 for other content");
    }
    let (one, other) = (version(2, "2026-01-05T00:00:00Z"), version(3, "2026-01-07T00:00:00Z"));
    assert_eq!(result(&both_ways(Policy::Ours, &base, &one, &other))["spec"]["replicas"], 2);
    assert_eq!(result(&both_ways(Policy::Theirs, &base, &one, &other))["spec"]["replicas"], 3);
}

#[test]
fn spec_on_one_side_and_status_on_the_other_both_survive() {
    let base = pod();
    let one = edited(&base, |pod| pod["spec"]["activeDeadlineSeconds"] = 5.into());
    let other = edited(&base, |pod| pod["status"] = json!({"phase": "Running"}));
    let merged = clean(&base, &one, &other);
    assert_eq!((&merged["spec"], &merged["status"]), (&one["spec"], &other["status"]));
}

#[test]
fn a_new_content_gets_a_new_generation() {
    let base = json!({"kind": "Tank", "apiVersion": "demo.example.org/v1", "metadata": {"name": "t", "uid": "u", "generation": 4},
        "spec": {"a": 1, "b": 1}, "status": {"observedGeneration": 4}});
    let version = |field: &str| {
        edited(&base, |tank| {
            tank["spec"][field] = 2.into();
            tank["metadata"]["generation"] = 5.into();
            tank["status"]["observedGeneration"] = 5.into();
        })
    };
    let merged = clean(&base, &version("a"), &version("b"));
    assert_eq!(merged["spec"], json!({"a": 2, "b": 2}));
    assert_eq!(merged["metadata"]["generation"], 6);
    assert_eq!(merged["status"]["observedGeneration"], 5, "the lower one, so that the controller observes it again");
}

#[test]
fn a_deletion_that_has_begun_is_not_lost_and_ends_with_the_last_finalizer() {
    let base = edited(&pod(), |pod| pod["metadata"]["finalizers"] = json!(["x", "y"]));
    let dying = |pod: &mut Json| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-03T00:00:00Z".into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    };
    let one = edited(&base, |pod| {
        dying(pod);
        pod["metadata"]["finalizers"] = json!(["y"]);
    });
    let changed = edited(&base, |pod| pod["metadata"]["labels"]["x"] = "y".into());
    let merged = clean(&base, &one, &changed);
    assert_eq!(merged["metadata"]["deletionTimestamp"], "2026-01-03T00:00:00Z");
    assert_eq!(merged["metadata"]["finalizers"], json!(["y"]));
    let other = edited(&base, |pod| pod["metadata"]["finalizers"] = json!(["x"]));
    assert_eq!(clean(&base, &one, &other), Json::Null);
    let graceful = edited(&one, |pod| pod["metadata"]["deletionGracePeriodSeconds"] = 30.into());
    assert_ne!(clean(&base, &graceful, &other), Json::Null, "the pod has its grace period");
}

#[test]
fn objects_of_one_name_are_never_mixed() {
    let old = pod();
    let first = edited(&old, |pod| {
        pod["metadata"]["uid"] = "u2".into();
        pod["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z".into();
        pod["metadata"]["labels"] = json!({"made": "first"});
    });
    let second = edited(&old, |pod| {
        pod["metadata"]["uid"] = "u3".into();
        pod["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z".into();
    });
    for base in [&Json::Null, &old] {
        let merged = both_ways(Policy::Later, base, &first, &second);
        assert_eq!(result(&merged), first, "the first one created stays");
        assert_eq!(merged.conflicts[0].lost.as_deref(), Some("Pod web (u3)"));
    }
    let changed = edited(&old, |pod| pod["metadata"]["labels"]["x"] = "y".into());
    assert_eq!(result(&both_ways(Policy::Later, &old, &changed, &second)), second, "the old one was replaced");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn what_several_branches_created_on_their_own_does_not_depend_on_who_merges_first(
        data in proptest::collection::vec(proptest::collection::btree_map("[abc]", "[xyz]{0,2}", 1..4), 3),
    ) {
        let created = |data: &std::collections::BTreeMap<String, String>| {
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "o", "namespace": "n", "uid": "u"}, "data": data})
        };
        let objects: Vec<Json> = data.iter().map(created).collect();
        let merged = |one: &Json, other: &Json| match both_ways(Policy::Later, &Json::Null, one, other).outcome {
            Outcome::New(value) => serde_json::from_slice::<Json>(&value).unwrap(),
            outcome => panic!("{outcome:?}"),
        };
        let [a, b, c] = &objects[..] else { unreachable!("the list has three objects") };
        let all = merged(&merged(a, b), c);
        prop_assert_eq!(&merged(a, &merged(b, c)), &all);
        prop_assert_eq!(&merged(b, &merged(c, a)), &all);
        prop_assert_eq!(&merged(&merged(a, b), &merged(b, c)), &all);
    }
}

#[test]
fn who_says_nothing_of_the_identity_means_the_same_object() {
    let without = edited(&pod(), |pod| {
        pod["metadata"].as_object_mut().unwrap().remove("uid");
    });
    let completed = edited(&without, |pod| pod["metadata"]["uid"] = "u9".into());
    let changed = edited(&without, |pod| pod["metadata"]["labels"]["x"] = "y".into());
    let both = edited(&completed, |pod| pod["metadata"]["labels"]["x"] = "y".into());
    let merged = both_ways(Policy::Later, &without, &completed, &changed);
    assert_eq!(result(&merged), both);
    assert!(merged.conflicts.is_empty(), "{:?}", merged.conflicts);
    let again = edited(&both, |pod| pod["metadata"]["labels"]["z"] = "w".into());
    let merged = both_ways(Policy::Later, &without, &both, &again);
    assert_eq!(result(&merged), again, "a base without a uid is the same object");
}

#[test]
fn values_without_fields_are_taken_whole() {
    let schemas = Schemas::builtin();
    let run = |ours: &[u8], theirs: &[u8]| {
        merge(&schemas, Policy::Later, Some(b"k8s\0a"), Some(Side::of(ours)), Some(Side::of(theirs)))
    };
    let (one, other) = (&b"k8s\0\n\x02v1b"[..], &b"k8s:enc:aesgcm:v1:key:\xff"[..]);
    let (merged, swapped) = (run(one, other), run(other, one));
    assert_eq!(merged.conflicts, swapped.conflicts);
    assert_ne!(merged.outcome, swapped.outcome, "the same value wins");
}

#[test]
fn values_of_secrets_are_not_in_conflicts() {
    let base =
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "uid": "u"}, "data": {"k": "b2xk"}});
    let version = |value: &str| edited(&base, |secret| secret["data"]["k"] = value.into());
    let merged = both_ways(Policy::Later, &base, &version("b25l"), &version("dHdv"));
    let hidden = Some("(secret)".to_owned());
    assert_eq!(merged.conflicts, [Conflict { field: "data.k".into(), kept: hidden.clone(), lost: hidden }]);
}

#[test]
fn string_data_of_a_secret_is_data() {
    let secret = |fields: &Json| {
        let mut secret =
            json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "o", "namespace": "n", "uid": "u"}});
        secret.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        secret
    };
    // Both changed the same key, each in its own way.
    let merged = both_ways(
        Policy::Later,
        &secret(&json!({"data": {"p": "QQ=="}})),
        &secret(&json!({"data": {"p": "QQ=="}, "stringData": {"p": "mine"}})),
        &secret(&json!({"data": {"p": "Qg=="}})),
    );
    assert_eq!(merged.conflicts.len(), 1);
    let merged = result(&merged);
    let is_theirs = merged.get("stringData").is_none() && merged["data"]["p"] == "Qg==";
    assert!(is_theirs || merged["stringData"]["p"] == "mine", "{merged}");
    // kube-apiserver stored the file as data, and a user has changed the file.
    let merged = clean(
        &secret(&json!({"stringData": {"p": "A"}})),
        &secret(&json!({"data": {"p": "QQ=="}, "type": "Opaque"})),
        &secret(&json!({"stringData": {"p": "B"}})),
    );
    assert_eq!((&merged["data"]["p"], &merged["type"]), (&json!("Qg=="), &json!("Opaque")));
}

#[test]
fn yaml_stays_yaml() {
    let schemas = Schemas::builtin();
    let text = |a: u8, b: u8| format!("apiVersion: v1\nkind: ConfigMap\ndata:\n  a: '{a}'\n  b: '{b}'\n");
    let (base, one, other) = (text(1, 1), text(2, 1), text(1, 2));
    let merged = merge(
        &schemas,
        Policy::Later,
        Some(base.as_bytes()),
        Some(Side::of(one.as_bytes())),
        Some(Side::of(other.as_bytes())),
    );
    assert_eq!(merged.outcome, Outcome::New(text(2, 2).into_bytes()));
}

#[test]
fn the_same_change_on_both_sides_and_a_later_revert() {
    let base = json!({"a": 1, "b": 1});
    let changed = json!({"a": 2, "b": 1});
    assert_eq!(clean(&base, &changed, &changed), changed);
    // With the result of that merge as the next base:
    let other = json!({"a": 2, "b": 3});
    assert_eq!(clean(&changed, &base, &other), json!({"a": 1, "b": 3}));
}

#[test]
fn a_volume_that_both_sides_gave_another_source_has_one() {
    let managed = |time: &str| {
        json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:volumes": {"k:{\"name\":\"data\"}": {".": {}, "f:name": {}}}}}}}}])
    };
    let template = |source: &Json| {
        let mut data = json!({"name": "data"});
        data.as_object_mut().expect("it is an object").extend(source.as_object().expect("it is an object").clone());
        json!({"spec": {"volumes": [{"name": "before", "emptyDir": {}}, data], "containers": [{"name": "c", "image": "c:1"}]}})
    };
    let object = |kind: &str, source: &Json, time: &str| {
        let (api_version, content) = match kind {
            "PodTemplate" => ("v1", ("template", template(source))),
            _ => ("apps/v1", ("spec", json!({"template": template(source)}))),
        };
        json!({"kind": kind, "apiVersion": api_version, content.0: content.1,
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "managedFields": managed(time)}})
    };
    let volumes = |object: &Json| {
        let template = object.get("template").unwrap_or(&object["spec"]["template"]);
        template["spec"]["volumes"].clone()
    };
    let (empty, map, secret) = (
        json!({"emptyDir": {"medium": "Memory"}}),
        json!({"configMap": {"name": "a", "optional": true}}),
        json!({"secret": {"secretName": "b", "optional": true}}),
    );
    for kind in ["PodTemplate", "Deployment", "DaemonSet", "StatefulSet"] {
        let base = object(kind, &empty, "2026-01-01T00:00:00Z");
        // All relations of two times; a PodTemplate has no record of its writers.
        for (first, second) in [("02", "03"), ("03", "02"), ("02", "02")] {
            let one = object(kind, &map, &format!("2026-01-{first}T00:00:00Z"));
            // The other side also has one more volume.
            let other = edited(&object(kind, &secret, &format!("2026-01-{second}T00:00:00Z")), |object| {
                let template =
                    if kind == "PodTemplate" { &mut object["template"] } else { &mut object["spec"]["template"] };
                template["spec"]["volumes"]
                    .as_array_mut()
                    .expect("it is a list")
                    .push(json!({"name": "more", "emptyDir": {}}));
            });
            for policy in [Policy::Later, Policy::Ours, Policy::Theirs] {
                let merged = both_ways(policy, &base, &one, &other);
                let found = volumes(&result(&merged));
                let expect = |source: &Json| {
                    let mut expected = volumes(&object(kind, source, ""));
                    expected.as_array_mut().expect("it is a list").push(json!({"name": "more", "emptyDir": {}}));
                    expected
                };
                let (ours, theirs) = (expect(&map), expect(&secret));
                match policy {
                    Policy::Ours => assert_eq!(found, ours, "{kind}"),
                    Policy::Theirs => assert_eq!(found, theirs, "{kind}"),
                    Policy::Later if kind != "PodTemplate" && first != second => {
                        assert_eq!(found, if first > second { ours } else { theirs }, "{kind}: the later source");
                    }
                    Policy::Later => assert!(found == ours || found == theirs, "{kind} has not one source: {found}"),
                }
                let fields: Vec<_> = merged.conflicts.iter().map(|conflict| &*conflict.field).collect();
                let path = if kind == "PodTemplate" { "" } else { "spec." };
                assert_eq!(fields, [format!("{path}template.spec.volumes[name=data]")], "{kind}");
            }
        }
    }
}

/// The source of a `PersistentVolume` is among the other fields of its spec.
#[test]
fn a_persistent_volume_that_both_sides_gave_another_source_has_one() {
    let of = |spec: Json| json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": "v", "uid": "u"}, "spec": spec});
    let base = of(json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}));
    let one = of(json!({"capacity": {"storage": "2Gi"}, "nfs": {"server": "s", "path": "/b"}}));
    let other = of(json!({"capacity": {"storage": "1Gi"}, "local": {"path": "/c"}, "storageClassName": "fast"}));
    let with = |source: &Json, name: &str| {
        let mut spec = json!({"capacity": {"storage": "2Gi"}, "storageClassName": "fast"});
        spec[name] = source["spec"][name].clone();
        spec
    };
    let (ours, theirs) = (with(&one, "nfs"), with(&other, "local"));
    for (policy, allowed) in
        [(Policy::Later, vec![&ours, &theirs]), (Policy::Ours, vec![&ours]), (Policy::Theirs, vec![&theirs])]
    {
        let merged = both_ways(policy, &base, &one, &other);
        let found = &result(&merged)["spec"];
        assert!(allowed.contains(&found), "{policy:?}: {found}");
        assert_eq!(merged.conflicts.len(), 1, "{:?}", merged.conflicts);
    }
}

fn any_object() -> impl Strategy<Value = Json> {
    let scalar = prop_oneof![(0..4_i32).prop_map(Json::from), "[ab]{0,2}".prop_map(Json::from)];
    let named = ("[abc]", scalar.clone()).prop_map(|(name, value)| json!({"name": name, "value": value}));
    let leaf = prop_oneof![
        scalar.clone(),
        proptest::collection::vec(scalar, 0..3).prop_map(Json::from),
        proptest::collection::vec(named, 0..3).prop_map(Json::from),
    ];
    let inner =
        proptest::collection::btree_map("[a-d]", leaf, 0..4).prop_map(|map| Json::Object(map.into_iter().collect()));
    proptest::collection::btree_map("[a-d]", inner, 0..4).prop_map(|map| Json::Object(map.into_iter().collect()))
}

proptest! {
    #[test]
    fn merges_do_not_depend_on_the_sides(base in any_object(), one in any_object(), other in any_object(), policy in 0..3) {
        let policy = [Policy::Later, Policy::Ours, Policy::Theirs][policy as usize];
        both_ways(policy, &base, &one, &other);
    }

    #[test]
    fn a_side_that_changed_nothing_changes_nothing(base in any_object(), other in any_object()) {
        prop_assert_eq!(clean(&base, &base, &other), other.clone());
        prop_assert_eq!(clean(&other, &other, &other), other);
    }

    #[test]
    fn no_field_that_only_one_side_changed_is_lost(base in any_object(), one in any_object(), other in any_object()) {
        let merged = result(&both_ways(Policy::Later, &base, &one, &other));
        for name in ["a", "b", "c", "d"] {
            let [before, one, other, now] = [&base, &one, &other, &merged].map(|object| object.get(name));
            if before == one {
                prop_assert_eq!(now, other);
            } else if before == other || one == other {
                prop_assert_eq!(now, one);
            }
            for inner in ["a", "b", "c", "d"] {
                let [before, one, other, now] = [before, one, other, now].map(|object| object.and_then(|object| object.get(inner)));
                let whole = [one, other].iter().all(Option::is_some) && now.is_some();
                if whole && before == one {
                    prop_assert_eq!(now, other);
                } else if whole && before == other {
                    prop_assert_eq!(now, one);
                }
            }
        }
    }
}

//! Random objects and edits: what a plan must do whatever these are.

use std::collections::BTreeMap;

use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::SecretKinds;
use proptest::prelude::*;
use serde_json::{Value, json};
use trishanku_undo::{Action, Change, Live, Mode, Plan, Planner, Subject, document};

type Data = BTreeMap<String, u8>;

/// A `ConfigMap` with these entries, as kube-apiserver returns it at a version.
fn object(data: &Data, version: u32) -> Value {
    let data: BTreeMap<_, _> = data.iter().map(|(name, value)| (name, value.to_string())).collect();
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": version.to_string()},
        "data": data,
    })
}

/// A Deployment whose containers have these images.
fn deployment(containers: &Data) -> Value {
    let containers: Vec<_> =
        containers.iter().map(|(name, image)| json!({"name": name, "image": format!("i:{image}")})).collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "1"},
        "spec": {"replicas": 1, "template": {"spec": {"containers": containers}}},
    })
}

fn plan(current: &Value, changes: Vec<Change>, mode: Mode) -> Plan {
    let (schemas, live) = (Schemas::builtin(), Live::default());
    let planner = Planner { schemas: &schemas, secrets: &SecretKinds::default(), live: &live };
    planner.plan(vec![Subject::new("configmaps/n/a", Some(current.clone()), changes)], mode)
}

/// Returns the object after a plan.
fn applied(current: &Value, plan: &Plan) -> Value {
    match &plan.steps[0].action {
        Action::Update { object, .. } => object.clone(),
        Action::Nothing(_) => current.clone(),
        other => panic!("an object that exists at all times is neither created nor deleted: {other:?}"),
    }
}

fn change(before: &Value, after: &Value) -> Change {
    Change { before: Some(before.clone()), after: Some(after.clone()) }
}

fn data() -> impl Strategy<Value = Data> {
    prop::collection::btree_map("[a-f]", 0..4_u8, 1..6)
}

fn at<'v>(object: &'v Value, name: &str) -> Option<&'v Value> {
    object["data"].get(name)
}

proptest! {
    #[test]
    fn an_undo_of_an_undo_gives_the_first_state(before in data(), after in data()) {
        let (before, after) = (object(&before, 1), object(&after, 2));
        let undone = applied(&after, &plan(&after, vec![change(&before, &after)], Mode::Undo));
        prop_assert!(document::is_alike(&undone, &before));
        let redone = applied(&undone, &plan(&undone, vec![change(&after, &undone)], Mode::Undo));
        prop_assert!(document::is_alike(&redone, &after));
    }

    #[test]
    fn a_field_that_was_edited_later_is_never_changed_and_others_are(before in data(), after in data(), now in data()) {
        let (before, after, now) = (object(&before, 1), object(&after, 2), object(&now, 3));
        let undone = applied(&now, &plan(&now, vec![change(&before, &after)], Mode::Undo));
        for name in ["a", "b", "c", "d", "e", "f"] {
            let is_edited_later = at(&now, name) != at(&after, name);
            let expected = if is_edited_later { at(&now, name) } else { at(&before, name) };
            prop_assert_eq!(at(&undone, name), expected, "{}: {} {} {}", name, before, after, now);
        }
    }

    #[test]
    fn so_it_is_with_containers_that_are_matched_by_name(before in data(), after in data(), now in data()) {
        let images = |object: &Value| -> BTreeMap<String, String> {
            let items = object["spec"]["template"]["spec"]["containers"].as_array().cloned().unwrap_or_default();
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            items.iter().map(|item| (text(&item["name"]), text(&item["image"]))).collect()
        };
        let [before, after, now] = [&before, &after, &now].map(deployment);
        let undone = images(&applied(&now, &plan(&now, vec![change(&before, &after)], Mode::Undo)));
        let [before, after, now] = [&before, &after, &now].map(images);
        for name in ["a", "b", "c", "d", "e", "f"] {
            if now.get(name) != after.get(name) {
                prop_assert_eq!(undone.get(name), now.get(name), "{}: {:?} {:?} {:?}", name, before, after, now);
            }
        }
    }

    #[test]
    fn commits_that_are_undone_together_give_the_state_before_the_first(states in prop::collection::vec(data(), 2..6)) {
        let states: Vec<Value> = states.iter().zip(1..).map(|(data, version)| object(data, version)).collect();
        let mut changes: Vec<Change> = states.windows(2).map(|pair| change(&pair[0], &pair[1])).collect();
        changes.reverse();
        let last = states.last().expect("there are two");
        let undone = applied(last, &plan(last, changes, Mode::Undo));
        prop_assert!(document::is_alike(&undone, &states[0]), "{} {}", undone, states[0]);
    }

    #[test]
    fn a_restored_object_is_as_it_was_whole(then in data(), now in data()) {
        let (then, now) = (object(&then, 1), object(&now, 9));
        let restored = applied(&now, &plan(&now, vec![change(&then, &now)], Mode::Restore { prune: false }));
        prop_assert!(document::is_alike(&restored, &then));
        prop_assert_eq!(&restored["metadata"]["resourceVersion"], &now["metadata"]["resourceVersion"]);
    }
}

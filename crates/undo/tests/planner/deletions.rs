//! Deletions: those that merges brought, those that ended later, and what they keep back.

use serde_json::{Value, json};
use trishanku_undo::owners::OwnerId;
use trishanku_undo::{Action, Change, Live, Mode, Subject};

use crate::{map, object, plan, plan_with};

#[test]
fn an_owner_that_is_not_known_keeps_back_only_what_it_owns() {
    let with_owner = |name: &str, owner: &str, uid: &str, own: &str| {
        let owner = json!({"apiVersion": "dead.org/v1", "kind": "Thing", "name": owner, "uid": uid});
        object("v1", "ConfigMap", name, own, &json!({"metadata": {"ownerReferences": [owner]}, "data": {"tea": "4"}}))
    };
    let deleted = |value: Value| {
        let key = format!("configmaps/shop/{}", value["metadata"]["name"].as_str().expect("a name"));
        Subject::new(&key, None, vec![Change { before: Some(value), after: None }])
    };
    let mut of_owned = with_owner("child", "owned", "11", "12");
    of_owned["metadata"]["ownerReferences"][0]["apiVersion"] = "v1".into();
    of_owned["metadata"]["ownerReferences"][0]["kind"] = "ConfigMap".into();
    // It has this owner now, so there is nothing to find out.
    let edited = with_owner("edited", "x", "1", "13");
    let mut current = edited.clone();
    current["data"]["tea"] = "5".into();
    let changes = vec![Change { before: Some(edited), after: Some(current.clone()) }];
    let subjects = vec![
        deleted(with_owner("owned", "x", "1", "11")),
        deleted(of_owned),
        deleted(map("14", "4")),
        Subject::new("configmaps/shop/edited", Some(current), changes),
    ];
    let owner =
        OwnerId { api_version: "dead.org/v1".into(), kind: "Thing".into(), namespace: "shop".into(), name: "x".into() };
    let live = Live { unknown: [(owner, "no route; repair it".to_owned())].into(), ..Live::default() };
    let plan = plan_with(&live, subjects, Mode::Undo);
    let action = |name: &str| &plan.steps.iter().find(|step| step.object.name == name).expect("a step").action;
    let reason = "whether its owner Thing x exists is not known: no route; repair it";
    assert_eq!(action("owned"), &Action::Blocked(reason.to_owned()));
    assert_eq!(action("child"), &Action::Blocked("its owner ConfigMap owned is not created".to_owned()));
    assert!(matches!(action("prices"), Action::Create { .. }) && matches!(action("edited"), Action::Update { .. }));
}

#[test]
fn a_container_whose_content_is_not_known_is_not_deleted() {
    let namespace = object("v1", "Namespace", "shop", "1", &json!({}));
    let change = Change { before: None, after: Some(namespace.clone()) };
    let mut subject = Subject::new("namespaces/shop", Some(namespace), vec![change]);
    assert!(matches!(plan(vec![subject.clone()], Mode::Undo).steps[0].action, Action::Delete { .. }));
    subject.unlisted = Some("no route".to_owned());
    let blocked = Action::Blocked("what would be deleted with it is not known: no route".to_owned());
    assert_eq!(plan(vec![subject.clone()], Mode::Undo).steps[0].action, blocked);
    let kept = plan(vec![subject], Mode::Restore { prune: false });
    assert!(matches!(kept.steps[0].action, Action::Nothing(_)), "it is not deleted in any case: {kept:?}");
}

#[test]
fn a_deletion_that_ended_later_is_undone_with_its_end() {
    let mut terminating = map("1", "4");
    terminating["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    let changes = vec![
        Change { before: Some(terminating.clone()), after: None },
        Change { before: Some(map("1", "4")), after: Some(terminating) },
    ];
    let plan = plan(vec![Subject::new("configmaps/shop/prices", None, changes)], Mode::Undo);
    let Action::Create { object } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(object["data"], json!({"tea": "4"}));
}

/// A merge deleted an object that both branches had edited. The second change takes the edits of the other branch away.
#[test]
fn the_undo_of_a_merged_deletion_has_the_edits_of_both_branches() {
    let prices = |data: Value| object("v1", "ConfigMap", "prices", "1", &json!({ "data": data }));
    let (base, theirs) = (prices(json!({"tea": "4"})), prices(json!({"tea": "4", "milk": "1"})));
    let ours = prices(json!({"tea": "5"}));
    let changes = vec![Change { before: Some(ours), after: None }, Change { before: Some(theirs), after: Some(base) }];
    let plan = plan(vec![Subject::new("configmaps/shop/prices", None, changes)], Mode::Undo);
    let Action::Create { object } = &plan.steps[0].action else { panic!("{plan:?}") };
    assert_eq!(object["data"], json!({"tea": "5", "milk": "1"}));
}

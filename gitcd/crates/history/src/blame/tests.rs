//! Fields that two versions have in common.

use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::Exposure;
use gitcd_merge::value::Value;

use super::carry::{Fields, carried};
use super::leaves;

fn value(text: &str) -> Value {
    Value::parse(text.as_bytes()).expect("it is an object").0
}

/// Returns the paths of the fields that the other version has with the same value.
fn same(from: &str, to: &str) -> Vec<String> {
    let (from, to) = (value(from), value(to));
    let schemas = Schemas::builtin();
    let node = schemas.of("v1", "Pod");
    let (leaves, _) = leaves::of(&from, node, Exposure::Open);
    let fields: Fields = leaves.iter().map(|leaf| leaf.at.clone()).enumerate().collect();
    let found = carried(&from, &to, node, &fields);
    let back = carried(&to, &from, node, &found);
    assert_eq!(back, fields.into_iter().filter(|(number, _)| found.contains_key(number)).collect(), "and back");
    found.keys().map(|number| leaves[*number].path.to_string()).collect()
}

#[test]
fn items_are_carried_by_their_keys_wherever_they_are() {
    let from =
        r#"{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"},{"name":"c","image":"1"}]}}"#;
    let to = r#"{"spec":{"containers":[{"name":"c","image":"1"},{"image":"2","name":"a"}],"x":1}}"#;
    let carried = ["spec.containers[name=a].name", "spec.containers[name=c].name", "spec.containers[name=c].image"];
    assert_eq!(same(from, to), carried);
    assert_eq!(same(from, from).len(), 6);
    assert_eq!(same(from, "{}"), [""; 0]);
}

#[test]
fn atomic_values_are_carried_whole_and_sets_by_item() {
    let from = r#"{"metadata":{"finalizers":["x","y"]},"spec":{"nodeSelector":{"a":"1","b":"2"}}}"#;
    let to = r#"{"metadata":{"finalizers":["y","z"]},"spec":{"nodeSelector":{"a":"1","b":"3"}}}"#;
    assert_eq!(same(from, to), ["metadata.finalizers[y]"]);
}

#[test]
fn many_fields_are_found_by_name() {
    let map = |count: u32| {
        let fields: Vec<_> = (0..count).map(|number| format!("\"k{number}\":{}", number % 7)).collect();
        format!("{{\"data\":{{{}}}}}", fields.join(","))
    };
    assert_eq!(same(&map(20), &map(15)).len(), 15);
}

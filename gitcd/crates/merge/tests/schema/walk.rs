//! Walks schemas with arbitrary objects and definitions.

use gitcd_merge::schema::{ListKind, Node, Schemas, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

const KINDS: [(&str, &str); 6] = [
    ("v1", "Pod"),
    ("apps/v1", "Deployment"),
    ("v1", "PersistentVolume"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("example.com/v1", "Widget"),
];

/// A step between two nodes: a field, or `None` for the items of a list.
fn step() -> impl Strategy<Value = Option<String>> {
    let known = [
        "metadata",
        "spec",
        "status",
        "template",
        "containers",
        "volumes",
        "ports",
        "env",
        "valueFrom",
        "livenessProbe",
        "strategy",
        "selector",
        "conditions",
        "finalizers",
        "ownerReferences",
        "projected",
        "versions",
        "devices",
        "a",
        "b",
    ];
    prop_oneof![
        2 => Just(None),
        8 => proptest::sample::select(known.to_vec()).prop_map(|name| Some(name.to_owned())),
        1 => ".{0,6}".prop_map(Some),
    ]
}

/// Schemas as in definitions, also with contradictory keywords, or null.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({ "type": "string" })),
        Just(json!({ "x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-embedded-resource": true })),
        Just(json!(null)),
        Just(json!([1])),
    ];
    leaf.prop_recursive(5, 60, 4, |inner| {
        let list_type =
            proptest::sample::select(vec![json!("map"), json!("set"), json!("atomic"), json!("x"), json!(null)]);
        let keys = proptest::sample::select(vec![json!(["a"]), json!(["a", "b"]), json!([]), json!(null)]);
        let union = proptest::sample::select(vec![
            json!([{ "required": ["a"] }, { "required": ["b"] }]),
            json!([{ "required": "a" }, 1, {}]),
            json!(null),
        ]);
        prop_oneof![
            (inner.clone(), list_type.clone(), keys).prop_map(|(items, list, keys)| json!({
                "type": "array", "items": items, "x-kubernetes-list-type": list, "x-kubernetes-list-map-keys": keys,
            })),
            (inner.clone(), inner.clone(), list_type, union).prop_map(|(a, b, map, one_of)| json!({
                "type": "object", "properties": { "a": a, "b": b }, "x-kubernetes-map-type": map, "oneOf": one_of,
            })),
            inner.prop_map(|values| json!({ "type": "object", "additionalProperties": values })),
        ]
    })
}

fn widget(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "names": { "kind": "Widget" },
            "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// Checks what must hold at every node.
fn check(node: Node<'_>) -> Result<(), TestCaseError> {
    if let Some(ListKind::Map(keys)) = node.list() {
        prop_assert!(!keys.is_empty());
    }
    prop_assert_eq!(node.list().is_some(), node.shape() == Shape::List);
    prop_assert!(node.items().is_none() || node.list().is_some());
    for group in node.unions() {
        prop_assert!(group.len() > 1 && group.is_sorted());
    }
    let text = format!("{node:?}");
    prop_assert!(text.starts_with("Node"), "{}", text);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_path_ends_somewhere(schema in schema(), kind in 0..KINDS.len(), path in prop::collection::vec(step(), 0..12)) {
        let (schemas, problems) = Schemas::builtin().with_crds([&widget(&schema)]);
        prop_assert_eq!(schemas.of("example.com/v1", "Widget").is_some(), problems.is_empty());
        let (api_version, kind) = KINDS[kind];
        let mut place = schemas.of(api_version, kind);
        let mut steps = path.iter();
        while let Some(node) = place {
            check(node)?;
            place = match steps.next() {
                Some(Some(name)) => node.field(name),
                Some(None) => node.items(),
                None => None,
            };
        }
    }
}

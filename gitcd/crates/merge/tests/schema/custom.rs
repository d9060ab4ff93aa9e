//! Kinds that custom resource definitions define.

use gitcd_merge::schema::{ListKind, Schemas, Shape};
use serde_json::{Value, json};

use crate::{find, keys, node, unions};

const VERSION: &str = "example.com/v1";

/// Returns a definition of the kind `Widget` with this schema of `spec`, in one version.
fn widget(spec: &Value) -> Value {
    definition("Widget", &[("v1", spec)])
}

fn definition(kind: &str, versions: &[(&str, &Value)]) -> Value {
    let versions = versions.iter().map(|(name, spec)| {
        let properties =
            json!({ "spec": spec, "metadata": { "type": "object", "properties": { "name": { "maxLength": 9 } } } });
        json!({ "name": name, "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } } })
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}s.example.com", kind.to_lowercase()) },
        "spec": { "group": "example.com", "names": { "kind": kind }, "versions": versions.collect::<Vec<_>>() },
    })
}

fn object(properties: &Value) -> Value {
    json!({ "type": "object", "properties": properties })
}

fn with(crds: &[Value]) -> Schemas {
    let (schemas, problems) = Schemas::builtin().with_crds(crds);
    assert_eq!(problems, Vec::<String>::new());
    schemas
}

#[test]
fn lists_and_maps_are_merged_as_annotated() {
    let port = object(&json!({
        "name": { "type": "string" },
        "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
    }));
    let schemas = with(&[widget(&object(&json!({
        "ports": {
            "type": "array", "items": port,
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "protocol"],
        },
        "zones": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
        "args": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "atomic" },
        "plain": { "type": "array", "items": object(&json!({ "name": { "type": "string" } })) },
        "selector": { "type": "object", "additionalProperties": { "type": "string" }, "x-kubernetes-map-type": "atomic" },
        "labels": { "type": "object", "additionalProperties": { "type": "string" }, "x-kubernetes-map-type": "granular" },
        "pools": { "type": "object", "additionalProperties": object(&json!({
            "hosts": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
        })) },
        "anything": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "size": { "x-kubernetes-int-or-string": true },
    })))]);
    let spec = node(&schemas, VERSION, "Widget", "spec");

    let ports = spec.field("ports").expect("known");
    assert_eq!(keys(ports), ["name", "protocol"]);
    assert_eq!(find(ports, "[].tags").and_then(|list| list.list()), Some(ListKind::Set));
    assert_eq!(spec.field("zones").and_then(|list| list.list()), Some(ListKind::Set));
    assert_eq!(spec.field("args").and_then(|list| list.list()), Some(ListKind::Atomic));
    // Kubernetes treats a list without a declared type as one value, even if its items have names.
    assert_eq!(spec.field("plain").and_then(|list| list.list()), Some(ListKind::Atomic));
    assert!(spec.field("selector").is_some_and(|map| map.is_atomic() && map.list().is_none()));
    let pool = find(spec, "pools.any-key").expect("known of every key");
    assert_eq!(pool.field("hosts").and_then(|list| list.list()), Some(ListKind::Set));
    for (path, shape) in [
        ("labels.any-key", Shape::String),
        ("anything", Shape::Object),
        ("size", Shape::IntOrString),
        ("args.[]", Shape::String),
        ("plain.[].name", Shape::String),
        ("selector.any-key", Shape::String),
    ] {
        assert_eq!(find(spec, path).map(|node| node.shape()), Some(shape), "{path}");
    }
    assert!(spec.field("no-such-field").is_none());
    assert!(spec.field("labels").is_some_and(|map| !map.is_atomic() && map.list().is_none()));
}

#[test]
fn all_versions_are_known_each_with_its_own_schema() {
    let set = object(&json!({ "zones": { "type": "array", "x-kubernetes-list-type": "set" } }));
    let atomic = object(&json!({ "zones": { "type": "array" } }));
    let schemas = with(&[definition("Widget", &[("v1", &set), ("v1beta1", &atomic)])]);
    assert_eq!(node(&schemas, VERSION, "Widget", "spec.zones").list(), Some(ListKind::Set));
    assert_eq!(node(&schemas, "example.com/v1beta1", "Widget", "spec.zones").list(), Some(ListKind::Atomic));
    assert!(schemas.of("example.com/v2", "Widget").is_none());
    assert!(schemas.of("v1", "Pod").is_some());
}

#[test]
fn folders_of_definitions_are_known() {
    let mut crd = widget(&json!({}));
    crd["spec"]["names"]["plural"] = json!("widgets");
    for (scope, is_namespaced) in [("Namespaced", true), ("Cluster", false)] {
        crd["spec"]["scope"] = json!(scope);
        let schemas = with(&[crd.clone()]);
        let (folder, components) = schemas.folder("example.com/widgets/a").expect("known");
        assert_eq!((components, folder.is_namespaced), (2, is_namespaced));
        assert_eq!(folder.kinds, [("example.com".to_owned(), "Widget".to_owned())]);
    }
}

#[test]
fn metadata_is_that_of_every_object_also_where_a_resource_is_embedded() {
    let template = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true });
    let schemas = with(&[widget(&object(&json!({
        "template": template,
        "list": { "type": "array", "items": template, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["kind"] },
        "other": object(&json!({ "metadata": { "type": "object" } })),
    })))]);
    for path in ["metadata", "spec.template.metadata", "spec.list.[].metadata"] {
        let metadata = node(&schemas, VERSION, "Widget", path);
        assert_eq!(keys(metadata.field("ownerReferences").expect("known")), ["uid"], "{path}");
        assert_eq!(metadata.field("finalizers").and_then(|list| list.list()), Some(ListKind::Set), "{path}");
    }
    let root = schemas.of(VERSION, "Widget").expect("known");
    assert!(find(root, "spec.other.metadata.ownerReferences").is_none());
    assert!(find(root, "spec.template.spec").is_none());
}

#[test]
fn exclusive_fields_are_found_in_the_ways_that_definitions_say_so() {
    let fields = json!({ "a": { "type": "string" }, "b": { "type": "string" }, "c": { "type": "string" } });
    let spec = |more: Value| {
        let mut spec = object(&fields);
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        spec
    };
    let groups = |more: Value| {
        let schemas = with(&[widget(&spec(more))]);
        let root = schemas.of(VERSION, "Widget").expect("known");
        root.field("spec")
            .map_or(Vec::new(), |spec| unions(spec).into_iter().map(|group| group.concat()).collect::<Vec<_>>())
    };
    assert_eq!(groups(json!({ "oneOf": [{ "required": ["b"] }, { "required": ["a"] }] })), ["ab"]);
    // None of them is valid, too.
    let none = json!({ "not": { "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] } });
    assert_eq!(groups(json!({ "oneOf": [none, { "required": ["a"] }, { "required": ["b"] }] })), ["ab"]);
    let all_of = json!([
        { "oneOf": [{ "required": ["a"] }, { "required": ["b"] }] },
        { "oneOf": [{ "required": ["b"] }, { "required": ["c"] }] },
    ]);
    assert_eq!(groups(json!({ "allOf": all_of })), ["ab", "bc"]);
    assert_eq!(groups(json!({ "maxProperties": 1 })), ["abc"]);
    // Not exclusive: several may match, or an alternative requires more.
    assert_eq!(groups(json!({ "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] })), Vec::<String>::new());
    assert_eq!(groups(json!({ "oneOf": [{ "required": ["a", "b"] }, { "required": ["b"] }] })), Vec::<String>::new());
    let kinds = json!([
        { "required": ["a"], "properties": { "c": { "enum": ["x"] } } },
        { "required": ["b"], "properties": { "c": { "enum": ["y"] } } },
    ]);
    assert_eq!(groups(json!({ "oneOf": kinds })), Vec::<String>::new());
}

#[test]
fn a_malformed_definition_is_left_out_and_reported() {
    let list = |keywords: Value| {
        let mut list = json!({ "type": "array", "items": { "type": "object" } });
        list.as_object_mut().expect("an object").extend(keywords.as_object().expect("an object").clone());
        widget(&object(&json!({ "list": list })))
    };
    let mut no_kind = widget(&json!({}));
    no_kind["spec"]["names"] = json!({});
    let mut no_group = widget(&json!({}));
    no_group["spec"]["group"] = json!("");
    let mut no_versions = widget(&json!({}));
    no_versions["spec"]["versions"] = json!({ "v1": {} });
    let mut no_name = widget(&json!({}));
    no_name["spec"]["versions"][0]["name"] = json!(1);
    let mut other = widget(&json!({}));
    other["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    let zones = object(&json!({ "zones": { "type": "array" } }));
    let [before, after] = ["Before", "After"].map(|kind| definition(kind, &[("v1", &zones)]));

    for (malformed, problem) in [
        (
            list(json!({ "x-kubernetes-list-type": "map" })),
            "spec.properties.list.x-kubernetes-list-map-keys: not a list of",
        ),
        (list(json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [] })), "not a list of names"),
        (list(json!({ "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [1] })), "not a list of names"),
        (list(json!({ "x-kubernetes-list-type": "bag" })), "unknown: bag"),
        (list(json!({ "x-kubernetes-list-type": 1 })), "x-kubernetes-list-type: not a string"),
        (widget(&json!({ "x-kubernetes-map-type": "odd" })), "properties.spec.x-kubernetes-map-type: unknown: odd"),
        (widget(&json!("text")), "spec.versions[0].schema.openAPIV3Schema.properties.spec: not an object"),
        (no_kind, "CustomResourceDefinition widgets.example.com: no spec.names.kind"),
        (no_group, "no spec.group"),
        (no_versions, "no spec.versions"),
        (no_name, "spec.versions[0].name"),
        (other, "not a CustomResourceDefinition"),
        (json!(null), "CustomResourceDefinition without a name: not a"),
    ] {
        let (schemas, problems) = Schemas::builtin().with_crds([&before, &malformed, &after]);
        let [reported] = &problems[..] else { panic!("one problem of {malformed}: {problems:?}") };
        assert!(reported.contains(problem), "{reported:?} does not contain {problem:?}");
        assert!(schemas.of(VERSION, "Widget").is_none(), "{reported}");
        for good in ["Before", "After"] {
            assert_eq!(
                node(&schemas, VERSION, good, "spec.zones").list(),
                Some(ListKind::Atomic),
                "{good}: {reported}"
            );
        }
    }
}

#[test]
fn a_definition_with_one_malformed_version_defines_none() {
    let good = object(&json!({ "zones": { "type": "array" } }));
    let (schemas, problems) =
        Schemas::builtin().with_crds([&definition("Widget", &[("v1", &good), ("v2", &json!(1))])]);
    assert_eq!(problems.len(), 1);
    assert!(schemas.of(VERSION, "Widget").is_none());
}

#[test]
fn a_version_without_a_schema_has_metadata_at_least() {
    let mut crd = widget(&json!({}));
    crd["spec"]["versions"][0].as_object_mut().expect("an object").remove("schema");
    let schemas = with(&[crd]);
    assert_eq!(keys(node(&schemas, VERSION, "Widget", "metadata.ownerReferences")), ["uid"]);
}

#[test]
fn a_later_definition_replaces_an_earlier_one_but_no_built_in_kind() {
    let zones = |list_type: &str| object(&json!({ "zones": { "type": "array", "x-kubernetes-list-type": list_type } }));
    let first = with(&[widget(&zones("set")), definition("Other", &[("v1", &zones("set"))])]);
    let (second, problems) = first.with_crds([&widget(&zones("atomic"))]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(node(&first, VERSION, "Widget", "spec.zones").list(), Some(ListKind::Set));
    assert_eq!(node(&second, VERSION, "Widget", "spec.zones").list(), Some(ListKind::Atomic));
    assert_eq!(node(&second, VERSION, "Other", "spec.zones").list(), Some(ListKind::Set));

    let mut deployment = definition("Deployment", &[("v1", &zones("set"))]);
    deployment["spec"]["group"] = json!("apps");
    let (schemas, problems) = second.with_crds([&deployment]);
    assert_eq!(problems, ["CustomResourceDefinition deployments.example.com: apps/v1 Deployment is built in"]);
    assert!(node(&schemas, "apps/v1", "Deployment", "spec.strategy").is_whole());
}

#[test]
fn a_schema_that_is_very_deep_is_refused() {
    let deep = |levels: usize| (0..levels).fold(json!({ "type": "array" }), |below, _| object(&json!({ "f": below })));
    let schemas = with(&[widget(&deep(400))]);
    let path = format!("spec{}", ".f".repeat(400));
    assert_eq!(node(&schemas, VERSION, "Widget", &path).list(), Some(ListKind::Atomic));
    let (_, problems) = Schemas::builtin().with_crds([&widget(&deep(600))]);
    assert!(problems.iter().any(|problem| problem.ends_with("f: too deep")), "{problems:?}");
}

//! Objects that merges may find expensive.

use gitcd_merge::schema::Schemas;
use gitcd_merge::{Policy, Side, merge};

use super::{FACTOR, each, in_proportion};

/// A base and two sides.
type Versions = [String; 3];

/// Returns the same, separated by commas.
fn list(count: usize, text: impl Fn(usize) -> String) -> String {
    each(count, |number| format!("{}{}", if number > 0 { "," } else { "" }, text(number)))
}

fn json(kind: &str, metadata: &str, rest: &str) -> String {
    let (api_version, kind) = kind.split_once(' ').expect("a version and a kind");
    format!(
        "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"a\"{metadata}}}{rest}}}\n"
    )
}

fn objects(count: usize) -> Vec<(&'static str, Versions)> {
    let map = |value: &str| list(count, |n| format!("\"k{n}\":\"{value}\""));
    let config = |metadata: &str, value: &str| json("v1 ConfigMap", metadata, &format!(",\"data\":{{{}}}", map(value)));
    let managers = |value: &str| {
        let time = "2026-01-01T00:00:00Z";
        let entry = |n| {
            format!(
                "{{\"manager\":\"m{n}{value}\",\"time\":\"{time}\",\"fieldsV1\":{{\"f:data\":{{\"f:k{n}\":{{}}}}}}}}"
            )
        };
        format!(",\"managedFields\":[{}]", list(count, entry))
    };
    let finalizers = |value: &str| format!(",\"finalizers\":[{}]", list(count, |n| format!("\"{value}{n}\"")));
    let deleted = ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"";
    let versions = |value: &str| {
        let stored = list(count, |n| format!("\"v{n}\""));
        let rest = format!(
            ",\"spec\":{{\"group\":\"{value}\",\"versions\":[{}]}},\"status\":{{\"storedVersions\":[{stored}],\"x\":\"{value}\"}}",
            list(count, |n| format!("{{\"name\":\"v{n}\"}}"))
        );
        json("apiextensions.k8s.io/v1 CustomResourceDefinition", "", &rest)
    };
    let selector = |value: &str, other: &str| {
        let rest = format!(
            ",\"spec\":{{\"paused\":{value},\"selector\":{{\"matchLabels\":{{{0}}}}},\"template\":{{\"metadata\":{{\"labels\":{{\"x\":\"{other}\",{0}}}}}}}}}",
            map("a")
        );
        json("apps/v1 Deployment", "", &rest)
    };
    let pod = |volumes: usize, mounts: usize| {
        let rest = format!(
            ",\"spec\":{{\"volumes\":[{}],\"containers\":[{{\"name\":\"a\",\"volumeMounts\":[{}]}}]}}",
            list(volumes, |n| format!("{{\"name\":\"v{n}\",\"emptyDir\":{{}}}}")),
            list(mounts, |n| format!("{{\"name\":\"v{n}\",\"mountPath\":\"/{n}\"}}"))
        );
        json("v1 Pod", "", &rest)
    };
    let resources = |value: &str, other: &str| {
        let amounts = |value: &str| list(count, |n| format!("\"example.org/r{n}\":\"{value}\""));
        let rest = format!(
            ",\"spec\":{{\"containers\":[{{\"name\":\"a\",\"resources\":{{\"limits\":{{{}}},\"requests\":{{{}}}}}}}]}}",
            amounts(value),
            amounts(other)
        );
        json("v1 Pod", "", &rest)
    };
    let yaml = |data: String| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\n{data}");
    let one_line = |value: &str| yaml(format!("data: {{{}}}\n", each(count, |n| format!("k{n}: {value}, "))));
    let items = |value: &str, from: usize| {
        yaml(
            each(1, |_| "x:\n".to_owned())
                + &each(count.min(400), |n| {
                    format!("- {{name: n{}, y: {value}, z: {}}}\n", n + from, "z".repeat(count / 50))
                }),
        )
    };
    let deep = |value: &str| {
        let depth = 150;
        let inner = list(count, |n| format!("\"k{n}\":\"{value}\""));
        json("v1 ConfigMap", "", &format!(",\"x\":{}{{{inner}}}{}", "{\"a\":".repeat(depth), "}".repeat(depth)))
    };
    let long = |value: &str| {
        let name = "n".repeat(10_000);
        json("v1 ConfigMap", "", &format!(",\"{name}\":{{{}}}", list(count / 4, |n| format!("\"k{n}\":\"{value}\""))))
    };
    vec![
        ("fields", [config("", "a"), config("", "b"), config("", "c")]),
        ("managers", [config(&managers("a"), "a"), config(&managers("b"), "b"), config(&managers("c"), "c")]),
        ("managers of one side", [config(&managers("a"), "a"), config(&managers("b"), "b"), config("", "c")]),
        ("deletion", [config(&managers("a"), "a"), config(&managers("b"), "b"), String::new()]),
        (
            "finalizers",
            [config(&finalizers("a"), "a"), config(&finalizers("b"), "a"), config(&(finalizers("c") + deleted), "a")],
        ),
        ("versions", [versions("a"), versions("b"), versions("c")]),
        ("selector", [selector("false", "a"), selector("true", "a"), selector("false", "b")]),
        ("volumes", [pod(count, 0), pod(0, 0), pod(count, count)]),
        ("resources", [resources("1", "1"), resources("2", "1"), resources("1", "2")]),
        ("one line", [one_line("a"), one_line("b"), one_line("c")]),
        ("items", [items("a", 0), items("b", 200), items("c", 0)]),
        ("deep", [deep("a"), deep("b"), deep("c")]),
        ("long names", [long("a"), long("b"), long("c")]),
    ]
}

fn merged(versions: &Versions) {
    let [base, one, other] = versions.each_ref().map(|text| (!text.is_empty()).then_some(text.as_bytes()));
    let merged = merge(&Schemas::builtin(), Policy::Later, base, one.map(Side::of), other.map(Side::of));
    let reported: usize = merged.conflicts.iter().map(|conflict| conflict.field.len()).sum();
    assert!(reported < 64 << 20, "{reported} bytes of {} conflicts", merged.conflicts.len());
}

#[test]
fn objects_are_merged_in_time_that_is_proportional_to_their_size() {
    let small = 300;
    for ((name, small), (_, large)) in objects(small).iter().zip(&objects(FACTOR * small)) {
        in_proportion(name, small, large, merged);
    }
}

#[test]
fn a_definition_with_many_exclusive_fields_costs_no_more_than_others() {
    let crd = |count: usize| {
        let one_of = list(count, |n| format!("{{\"required\":[\"k{n}\"]}}"));
        let pair = |n| format!(",{{\"oneOf\":[{{\"required\":[\"k{n}\"]}},{{\"required\":[\"k{}\"]}}]}}", n + 1);
        let many = each(count, pair);
        let schema = format!("{{\"type\":\"object\",\"allOf\":[{{\"oneOf\":[{one_of}]}}{many}]}}");
        let text = format!(
            "{{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\",\"spec\":{{\"group\":\"a.b\",\"scope\":\"Namespaced\",\
             \"names\":{{\"kind\":\"X\",\"plural\":\"xs\"}},\"versions\":[{{\"name\":\"v1\",\"schema\":{{\"openAPIV3Schema\":{schema}}}}}]}}}}"
        );
        let value =
            |value: &str| json("a.b/v1 X", "", &format!(",{}", list(count, |n| format!("\"k{n}\":\"{value}\""))));
        (text, [value("a"), value("b"), value("c")])
    };
    let run = |(definition, versions): &(String, Versions)| {
        let definition: serde_json::Value = serde_json::from_str(definition).unwrap();
        let (schemas, problems) = Schemas::builtin().with_crds(&[definition]);
        assert!(problems.is_empty(), "{problems:?}");
        let [base, one, other] = versions.each_ref().map(String::as_bytes);
        merge(&schemas, Policy::Later, Some(base), Some(Side::of(one)), Some(Side::of(other)));
    };
    in_proportion("unions", &crd(300), &crd(300 * FACTOR), run);
}

//! Accepted and rejected files.

use super::complete::uuid;
use super::*;
use crate::secrecy::Exposure;

const MAP: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"n","uid":"u"},"data":{}}"#;

fn check(relative: &str, value: &str, before: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    let admission = Admission { schemas: &Schemas::builtin(), is_kubernetes: false, completes: true };
    reasoned(&admission, relative, value, before)
}

/// Admits a file; returns the formatted reason for a rejection.
fn reasoned(
    admission: &Admission<'_>,
    relative: &str,
    value: &str,
    before: Option<&str>,
) -> Result<Option<Vec<u8>>, String> {
    let origin = || Some(Origin { commit: [1; 20], time: 1_793_000_000 });
    let admitted = admission.admit(relative.as_bytes(), value.as_bytes(), before.map(str::as_bytes), origin);
    admitted.map_err(|findings| reason(&findings, value.as_bytes(), Exposure::Open))
}

#[test]
fn what_is_not_the_object_of_its_key_is_refused() {
    assert_eq!(check("configmaps/n/a", MAP, None), Ok(None));
    assert_eq!(check("configmaps/n/a", MAP, Some(MAP)), Ok(None));
    for value in ["any text", "kind: of text\n\t- [", "{\"kind\":\"own\"}", "[1]", "metadata: 7", "a: 1\n"] {
        assert_eq!(check("k", value, None), Ok(None), "{value}");
    }
    for (relative, value, before) in [
        ("configmaps/n/b", MAP, None),
        ("configmaps/m/a", MAP, None),
        ("configmaps/n/a", "{\"apiVersion\":", None),
        ("configmaps/n/a", "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n data: [\n", None),
        ("configmaps/n/a", "# mine\nkind: ConfigMap\nmetadata: {name: a\n", None),
        ("configmaps/n/a", "apiVersion: v1\n<<<<<<< ours\nkind: ConfigMap\n", None),
        ("configmaps/n/a", "kind: ConfigMap\nmetadata: {name: a}\n", None),
        ("configmaps/n/a", "metadata: {name: a}\ndata: {}\n", None),
        ("configmaps/n/a", "apiVersion: ''\nkind: ConfigMap\n", None),
        ("configmaps/n/a", "<<<<<<< ours", Some(MAP)),
        ("configmaps/n/a", "{}", Some(MAP)),
        ("configmaps/n/a", &MAP.replace("ConfigMap", "Secret"), Some(MAP)),
        ("configmaps/n/a", &MAP.replace("\"name\":\"a\"", "\"name\":\"b\""), Some(MAP)),
    ] {
        assert!(check(relative, value, before).is_err(), "{relative} {value}");
    }
}

#[test]
fn identity_and_generation_are_completed_the_same_way_by_everyone() {
    let new = MAP.replace(",\"uid\":\"u\"", "");
    let text = String::from_utf8(check("configmaps/n/a", &new, None).unwrap().unwrap()).unwrap();
    let uid = uuid(&format!("{} configmaps/n/a", "01".repeat(20)));
    assert_eq!(
        text,
        MAP.replace("\"uid\":\"u\"", &format!("\"uid\":\"{uid}\",\"creationTimestamp\":\"2026-10-26T07:33:20Z\""))
    );
    assert_eq!(check("configmaps/n/a", &new, Some(MAP)), Ok(Some(MAP.as_bytes().to_vec())), "the identity is kept");
    let before = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d","namespace":"n","uid":"u","generation":3},"spec":{"replicas":1}}"#;
    let after = before.replace("\"replicas\":1", "\"replicas\":2");
    let completed = String::from_utf8(check("deployments/n/d", &after, Some(before)).unwrap().unwrap()).unwrap();
    assert_eq!(completed, after.replace("\"generation\":3", "\"generation\":4"));
}

/// Admits a file to a store of Kubernetes.
fn strictly(relative: &str, value: &str, before: Option<&str>) -> Result<String, String> {
    let admission = Admission { schemas: &Schemas::builtin(), is_kubernetes: true, completes: true };
    let admitted = reasoned(&admission, relative, value, before)?;
    Ok(admitted.map_or_else(|| value.to_owned(), |value| String::from_utf8(value).unwrap()))
}

fn refused(relative: &str, value: &str) -> String {
    strictly(relative, value, None).expect_err(value)
}

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: web
        ports:
        - containerPort: 80
";

#[test]
fn a_value_of_another_type_is_refused_with_line_field_and_remedy() {
    let map = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n{data}");
    assert_eq!(
        refused("configmaps/n/a", &map("  ok: x\n  port: 8080\n")),
        "line 7: data.port: is a number, but must be a string; put it in quotes"
    );
    assert!(refused("configmaps/n/a", &map("  debug: true\n")).starts_with("line 6: data.debug: is a boolean"));
    assert!(refused("configmaps/n/a", &map("- x\n")).starts_with("line 5: data: is a list, but must be an object"));
    assert!(strictly("configmaps/n/a", &map("  port: \"8080\"\n  none: null\n"), None).is_ok());
    for (from, to, expected) in [
        ("replicas: 2", "replicas: two", "line 6: spec.replicas: is a string, but must be a whole number of 32 bits"),
        ("replicas: 2", "replicas: 2.5", "line 6: spec.replicas: is a number"),
        ("replicas: 2", "replicas: 99999999999", "line 6: spec.replicas: is a number"),
        (
            "containerPort: 80",
            "containerPort: http",
            "line 12: spec.template.spec.containers[0].ports[0].containerPort: is a string",
        ),
        ("name: web\nspec", "name: web\n  labels: {a: 1}\nspec", "line 5: metadata.labels.a: is a number"),
        (
            "name: web\nspec",
            "name: web\n  annotations: {a.b/c: true}\nspec",
            "line 5: metadata.annotations[a.b/c]: is a",
        ),
        ("  replicas: 2\n", "  strategy: Recreate\n", "line 6: spec.strategy: is a string, but must be an object"),
    ] {
        let reason = refused("deployments/n/web", &DEPLOYMENT.replace(from, to));
        assert!(reason.starts_with(expected), "{reason}");
    }
    let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"password":"hunter2!"}}"#;
    let reason = refused("secrets/n/a", secret);
    assert_eq!(reason, "line 1: data.password: is not base64; encode the bytes, with padding");
    // Of unknown kinds, the fields that every object has are checked.
    let unknown = "apiVersion: a.example.com/v1\nkind: B\nmetadata: {name: a, labels: {x: 1}}\nspec: 7\n";
    assert!(refused("a.example.com/bs/a", unknown).starts_with("line 3: metadata.labels.x"));
}

#[test]
fn fields_of_custom_resources_are_checked() {
    let definition = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "gates.example.com"},
        "spec": {
            "group": "example.com", "names": {"kind": "Gate", "plural": "gates"}, "scope": "Namespaced",
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                "type": "object", "properties": {
                    "size": {"type": "integer"}, "port": {"x-kubernetes-int-or-string": true}, "note": {"type": "string", "nullable": true},
                    "any": {"x-kubernetes-preserve-unknown-fields": true}, "open": {"type": "boolean"}, "share": {"type": "number"},
                },
            }}}}}],
        },
    });
    let (schemas, _) = Schemas::builtin().with_crds([&definition]);
    let admission = Admission { schemas: &schemas, is_kubernetes: true, completes: true };
    let admit = |path: &str, spec: &str| {
        let file = format!("apiVersion: example.com/v1\nkind: Gate\nmetadata: {{name: a}}\nspec: {spec}\n");
        reasoned(&admission, path, &file, None)
    };
    let good = "{size: 3, port: http, note: null, any: {x: [1]}, open: true, share: 0.5, other: 1}";
    let completed = admit("example.com/gates/n/a", good).expect("good").expect("completed");
    let (completed, _) = Value::parse(&completed).expect("an object");
    assert_eq!(text(&completed, &["metadata", "namespace"]), "n");
    for (bad, field) in [
        ("{size: big}", "size"),
        ("{size: 1.5}", "size"),
        ("{port: true}", "port"),
        ("{note: 1}", "note"),
        ("{open: \"true\"}", "open"),
    ] {
        let reason = admit("example.com/gates/n/a", bad).expect_err(bad);
        assert!(reason.starts_with(&format!("line 4: spec.{field}: ")), "{reason}");
    }
    assert!(admit("example.com/gates/a", "{}").expect_err("no namespace").contains("example.com/gates/NAMESPACE/NAME"));
    assert!(admit("configmaps/n/a", "{}").expect_err("another folder").contains("move the file to example.com/gates/"));
}

#[test]
fn the_path_says_name_and_namespace() {
    let completed = strictly("deployments/default/web", DEPLOYMENT, None).unwrap();
    let (completed, _) = Value::parse(completed.as_bytes()).unwrap();
    assert_eq!(text(&completed, &["metadata", "namespace"]), "default");
    assert_ne!(text(&completed, &["metadata", "uid"]), "");
    for metadata in [
        "{}",
        "null",
        "{creationTimestamp: '', deletionTimestamp: ''}",
        "{name: '', namespace: null, uid: '', creationTimestamp: null}",
    ] {
        let file = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {metadata}\n");
        let completed = strictly("configmaps/n/a", &file, None).unwrap();
        let (completed, _) = Value::parse(completed.as_bytes()).unwrap();
        for (field, expected) in [("name", "a"), ("namespace", "n"), ("creationTimestamp", "2026-10-26T07:33:20Z")] {
            assert_eq!(text(&completed, &["metadata", field]), expected, "{metadata}");
        }
        assert!(completed.at(&["metadata", "deletionTimestamp"]).is_none(), "{metadata}");
    }
    let node = strictly("minions/a", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", None).unwrap();
    assert!(!node.contains("namespace"), "{node}");
    let generated = DEPLOYMENT.replace("name: web\nspec", "generateName: web-\nspec");
    assert_eq!(
        refused("deployments/default/web-1", &generated),
        "line 4: metadata.generateName: a file needs a name; write metadata.name: \"web-1\" instead"
    );
    assert!(
        refused("minions/a", "apiVersion: v1\nkind: Node\nmetadata: {name: a, namespace: b}\n")
            .contains("no namespaces")
    );
    // A changed file keeps the object's identity.
    let before = strictly("deployments/default/web", DEPLOYMENT, None).unwrap();
    let after =
        strictly("deployments/default/web", &DEPLOYMENT.replace("replicas: 2", "replicas: 3"), Some(&before)).unwrap();
    let [before, after] = [before, after].map(|value| Value::parse(value.as_bytes()).unwrap().0);
    for field in ["uid", "creationTimestamp", "namespace"] {
        assert_eq!(text(&before, &["metadata", field]), text(&after, &["metadata", field]), "{field}");
    }
    // Without completion, the file must have the field.
    let admission = Admission { schemas: &Schemas::builtin(), is_kubernetes: true, completes: false };
    let reason = reasoned(&admission, "deployments/default/web", DEPLOYMENT, None).unwrap_err();
    assert_eq!(reason, "line 3: metadata.namespace: is missing; write namespace: \"default\"");
}

#[test]
fn an_object_is_in_the_folder_of_its_kind_only() {
    for (path, expected) in [
        (
            "configmaps/default/web",
            "is Deployment.apps, but configmaps/ holds ConfigMap; move the file to deployments/NAMESPACE/NAME",
        ),
        ("services/specs/default/web", "is Deployment.apps, but services/specs/ holds Service; move the file to"),
        ("deployments/web", "Deployment.apps must be at deployments/NAMESPACE/NAME: move the file there"),
        ("deployments/a/b/web", "Deployment.apps must be at deployments/NAMESPACE/NAME: move the file there"),
        ("web", "Deployment.apps must be at deployments/NAMESPACE/NAME: move the file there"),
        ("my/own/web", "Deployment.apps must be at deployments/NAMESPACE/NAME: move the file there"),
    ] {
        let reason = refused(path, DEPLOYMENT);
        assert!(reason.contains(expected), "{reason}");
    }
    let reason = refused("deployments/n/web", &DEPLOYMENT.replace("apps/v1", "apps/v9"));
    assert_eq!(reason, "line 1: apiVersion: Deployment.apps has no such version; use apps/v1");
    let reason = refused("deployments/n/web", &DEPLOYMENT.replace("apps/v1", "v1"));
    assert!(reason.starts_with("line 2: kind: is Deployment, but deployments/ holds Deployment.apps"), "{reason}");
    let review = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nmetadata: {name: a}\n";
    assert!(refused("tokenreviews/a", review).contains("kube-apiserver does not store TokenReview"));
    assert!(refused("a/b", "apiVersion: v1\nkind: Pots\nmetadata: {name: b}\n").contains("no kind Pots in v1"));
    // An existing broken file does not prevent a correct one.
    for before in ["hello: world\n", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: y}\n"] {
        assert!(strictly("deployments/default/web", DEPLOYMENT, Some(before)).is_ok(), "{before}");
    }
}

#[test]
fn what_is_no_object_does_not_enter_a_store_of_kubernetes() {
    for (path, file) in [
        ("README.md", "# Our cluster\n"),
        ("pods/default/README.md", "# Our pods\n"),
        ("pods/default/x", "hello: world\n"),
        ("x", "hello: world\n"),
        ("x", ""),
        ("pods/default/x", ""),
        ("pods/default/x", "plain text"),
        ("pods/default/x", "[]"),
        ("pods/default/x", "{}"),
        ("pods/x", "{\"apiVersion\": \"v1\",\n \"kind\": }"),
        ("configmaps/default/x", "apiVersion: v1\nkind: List\nitems: []\n"),
        ("configmaps/default/x", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: a}\n"),
        ("x", "apiVersion: v1\nkind: ConfigMap\nmetadata: 7\n"),
    ] {
        assert!(strictly(path, file, None).is_err(), "{path} {file:?}");
    }
    assert!(refused("pods/x", "{\"apiVersion\": \"v1\",\n \"kind\": }").starts_with("line 2: "));
    // Other stores may hold any values, in folders of any name.
    for (path, file) in [
        ("README.md", "# Our keys\n"),
        ("pods/default/x", "hello: world\n"),
        ("x", "hello: world\n"),
        ("x", ""),
        ("my/own/web", DEPLOYMENT),
    ] {
        assert!(check(path, file, None).is_ok(), "{path} {file:?}");
    }
    // Written by kube-apiserver itself.
    let address = r#"{"kind":"Endpoints","apiVersion":"v1","metadata":{},"subsets":[]}"#;
    let range = r#"{"kind":"RangeAllocation","apiVersion":"v1","metadata":{},"range":"10.0.0.0/24","data":"AA=="}"#;
    for (path, value) in [("masterleases/10.0.0.1", address), ("ranges/serviceips", range)] {
        assert_eq!(strictly(path, value, None).as_deref(), Ok(value), "{path}");
    }
}

#[test]
fn a_manifest_without_a_path_is_checked_and_unknown_fields_are_warnings() {
    let text = DEPLOYMENT.replace("replicas: 2", "replicaz: 2\n  paused: maybe");
    let findings: Vec<_> = super::check(&Schemas::builtin(), text.as_bytes())
        .into_iter()
        .map(|finding| finding.located(text.as_bytes()).to_string())
        .collect();
    assert_eq!(
        findings,
        [
            "line 6: spec.replicaz: warning: Kubernetes does not know this field, and drops it",
            "line 7: spec.paused: is a string, but must be a boolean: true or false, without quotes",
        ]
    );
    assert!(super::check(&Schemas::builtin(), DEPLOYMENT.as_bytes()).is_empty());
}

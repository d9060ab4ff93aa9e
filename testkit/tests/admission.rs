//! gitcd rejects a file for its types exactly if kube-apiserver cannot decode it.

use futures::StreamExt as _;
use gitcd::merge::schema::Schemas;
use gitcd::pull::admit;
use serde_json::{Value, json};
use trishanku_testkit::TestCluster;

/// Valid objects, and the paths of their resources.
fn objects() -> Vec<(&'static str, Value)> {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {
            "containers": [{
                "name": "c", "image": "i", "args": ["x"], "env": [{"name": "X", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"limits": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 10},
            }],
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}],
            "hostNetwork": false, "nodeSelector": {"a": "b"},
            "securityContext": {"runAsUser": 1},
        },
    });
    vec![
        (
            "/api/v1/namespaces/default/configmaps",
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                    "name": "a", "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a.b/c"],
                    "creationTimestamp": "2024-01-01T00:00:00Z", "generation": 1,
                    "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true}],
                },
                "data": {"a": "b"}, "binaryData": {"c": "AAEC"}, "immutable": false,
            }),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"},
                "type": "Opaque", "data": {"c": "AAEC"}, "stringData": {"a": "b"},
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
                    "replicas": 1, "paused": false, "selector": {"matchLabels": {"app": "a"}}, "template": template,
                    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}},
                },
            }),
        ),
        (
            "/api/v1/namespaces/default/services",
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {
                    "ports": [{"port": 80, "targetPort": "http"}], "selector": {"a": "b"}, "type": "ClusterIP",
                },
            }),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
                "spec": {"leaseDurationSeconds": 5, "renewTime": "2024-01-01T00:00:00.000000Z", "holderIdentity": "h"},
            }),
        ),
        (
            "/api/v1/persistentvolumes",
            json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"},
                    "claimRef": {"namespace": "default", "name": "c"},
                },
            }),
        ),
        (
            "/apis/apps/v1/namespaces/default/controllerrevisions",
            json!({
                "apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": "a"},
                "revision": 1, "data": {"a": 1},
            }),
        ),
    ]
}

/// The values to put at each path, as JSON text: numbers have several notations.
const PROBES: [&str; 33] = [
    "null",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.0",
    "1.5",
    "1e2",
    "2147483648",
    "9223372036854775808",
    "300",
    r#""""#,
    r#""x""#,
    r#""1""#,
    r#""true""#,
    r#""AAEC""#,
    r#""AAE=""#,
    r#""AAE""#,
    r#""AA EC""#,
    r#""100m""#,
    r#""1.5Gi""#,
    r#""1e3""#,
    r#""2024-01-01T00:00:00Z""#,
    r#""2024-01-01T00:00:00.5Z""#,
    r#""2024-01-01T00:00:00.000000Z""#,
    r#""2024-13-01T00:00:00Z""#,
    "[]",
    "[1]",
    r#"["x"]"#,
    "{}",
    r#"{"a":"b"}"#,
    r#"{"a":1}"#,
];

/// Collects the pointers to everything in a value.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut below = |name: &str, value: &Value| {
        let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
        found.push(at.clone());
        pointers(value, &at, found);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(name, value)| below(name, value)),
        Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| below(&at.to_string(), value)),
        _ => {}
    }
}

#[tokio::test]
async fn a_file_is_refused_for_its_types_if_kube_apiserver_cannot_decode_it() {
    let cluster = TestCluster::shared().await;
    let schemas = Schemas::builtin();
    let mut cases = Vec::new();
    for (path, object) in objects() {
        let mut at = Vec::new();
        pointers(&object, "", &mut at);
        // These identify the kind, so other errors come first.
        at.retain(|at| !["/apiVersion", "/kind"].contains(&at.as_str()));
        for at in at {
            for probe in PROBES {
                let mut changed = object.clone();
                *changed.pointer_mut(&at).expect("the path exists") = json!("\u{1}");
                let text = changed.to_string().replace("\"\\u0001\"", probe);
                cases.push((path, at.clone(), probe, text));
            }
        }
    }
    let ask = |(path, at, probe, text): (&'static str, String, &'static str, String)| {
        let (client, schemas) = (cluster.client(), &schemas);
        async move {
            let request = http::Request::post(format!("{path}?dryRun=All&fieldValidation=Ignore"))
                .header("content-type", "application/json")
                .body(text.clone().into_bytes())
                .expect("a request");
            let refused = match client.request::<Value>(request).await {
                Err(kube::Error::Api(status)) => {
                    status.message.contains("cannot be handled as a").then_some(status.message)
                }
                Ok(_) => None,
                Err(error) => panic!("{path} {at} {probe}: {error}"),
            };
            let found: Vec<_> = admit::check(schemas, text.as_bytes()).into_iter().filter(|f| !f.is_warning).collect();
            (refused.is_some() == found.is_empty())
                .then(|| format!("{path} {at} = {probe}: {refused:?}, but {found:?}"))
        }
    };
    let count = cases.len();
    let differences: Vec<String> =
        futures::stream::iter(cases).map(ask).buffer_unordered(16).filter_map(std::future::ready).collect().await;
    assert!(differences.is_empty(), "{} of {count}:\n{}", differences.len(), differences.join("\n"));
    println!("{count} objects");
}

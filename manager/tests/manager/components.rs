//! The components of `deploy/kustomize`, in all combinations.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trishanku_heaven_plan::workload::{HEAVEN, MERGE};
use trishanku_testkit::TestCluster;

use crate::composition::{Composition, Objects, all_but, built, combinations, container, has_argument, variable};
use crate::process::{deploy, run};

/// Kinds without a namespace.
const CLUSTER_SCOPED: [&str; 4] = ["Namespace ", "CustomResourceDefinition ", "ClusterRole ", "ClusterRoleBinding "];

/// The objects that a combination must have, from those of the base.
fn expected(base: &Objects, components: &[&str]) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = base.keys().cloned().collect();
    if components.contains(&"namespaced") {
        names.retain(|name| !CLUSTER_SCOPED.iter().any(|kind| name.starts_with(kind)));
        names.extend(["Role trishanku-manager".to_owned(), "RoleBinding trishanku-manager".to_owned()]);
    }
    for (component, added) in [
        ("high-availability", &["PodDisruptionBudget trishanku-manager"][..]),
        ("monitoring", &["Service trishanku-manager-metrics", "ServiceMonitor trishanku-manager"][..]),
        ("metrics-reader", &["ClusterRoleBinding trishanku-metrics-reader"][..]),
        ("network-policies", &["NetworkPolicy trishanku-manager"][..]),
        (
            "injection",
            &[
                "Service trishanku-webhooks",
                "ClusterRole trishanku-manager-injection",
                "ClusterRoleBinding trishanku-manager-injection",
                "Role trishanku-manager-injection",
                "RoleBinding trishanku-manager-injection",
                "MutatingWebhookConfiguration trishanku.trishanku-system",
                "ValidatingWebhookConfiguration trishanku.trishanku-system",
            ][..],
        ),
    ] {
        if components.contains(&component) {
            names.extend(added.iter().map(ToString::to_string));
        }
    }
    names
}

#[test]
fn every_combination_of_components_has_the_objects_and_settings_of_each() {
    let base = Composition::of(&[], "").objects();
    for components in combinations() {
        let has = |name: &str| components.contains(&name);
        let objects = Composition::of(&components, "").objects();
        let names: BTreeSet<String> = objects.keys().cloned().collect();
        assert_eq!(names, expected(&base, &components), "{components:?}");
        let deployment = &objects["Deployment trishanku-manager"]["spec"];
        assert_eq!(deployment["replicas"], if has("high-availability") { 3 } else { 1 }, "{components:?}");
        let is_spread = deployment["template"]["spec"]["topologySpreadConstraints"].is_array();
        assert_eq!(is_spread, has("high-availability"), "{components:?}");
        assert_eq!(variable(&objects, "OTEL_EXPORTER_OTLP_ENDPOINT").is_some(), has("tracing"), "{components:?}");
        let namespaces = has_argument(&objects, "--namespaces=$(POD_NAMESPACE)");
        assert_eq!(
            (namespaces, has_argument(&objects, "--allow-own-namespace")),
            (has("namespaced"), has("namespaced"))
        );
        // Metrics are off in one namespace, unless they are asked for: a flag takes precedence over its variable.
        assert_eq!(variable(&objects, "METRICS_BIND_ADDRESS"), has("namespaced").then_some("0"), "{components:?}");
        assert_eq!(has_argument(&objects, "--metrics-bind-address=:8080"), has("monitoring"), "{components:?}");
        assert_eq!(has_argument(&objects, "--inject-pods"), has("injection"), "{components:?}");
        // What all of them keep.
        assert_eq!(variable(&objects, "LOG_FORMAT"), Some("json"), "{components:?}");
        assert!(has_argument(&objects, "--leader-elect"), "{components:?}");
    }
}

#[test]
fn the_order_of_components_does_not_matter() {
    // Lists that Kubernetes treats as sets here.
    let sorted = |mut objects: Objects| {
        let container = objects.get_mut("Deployment trishanku-manager").unwrap();
        for list in ["args", "env"] {
            let list = container.pointer_mut(&format!("/spec/template/spec/containers/0/{list}")).unwrap();
            list.as_array_mut().unwrap().sort_by_key(ToString::to_string);
        }
        objects
    };
    for mut components in ["namespaced", "injection"].map(all_but) {
        let forwards = sorted(Composition::of(&components, "").objects());
        // Now each pair has been in both orders.
        components.reverse();
        assert_eq!(sorted(Composition::of(&components, "").objects()), forwards);
    }
}

#[test]
fn the_published_overlays_are_the_base_with_components() {
    let table = [
        ("cluster-wide", &[][..]),
        ("high-availability", &["high-availability"][..]),
        ("monitoring", &["monitoring", "metrics-reader"][..]),
        ("tracing", &["tracing"][..]),
        ("injection", &["injection"][..]),
        ("namespaced", &["namespaced"][..]),
    ];
    let base = Composition::of(&[], "").objects();
    for (overlay, components) in table {
        let mut expected = Composition::of(components, "").objects();
        if overlay == "namespaced" {
            let namespace = "Namespace trishanku-system";
            expected.insert(namespace.to_owned(), base[namespace].clone());
        }
        assert_eq!(built(&deploy().join("overlays").join(overlay)), expected, "{overlay}");
    }
}

#[test]
fn the_documented_kustomizations_do_what_the_documentation_says() {
    let documentation = include_str!("../../../docs/operate.md");
    let blocks = documentation.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let kustomizations: Vec<&str> = blocks.filter(|block| block.contains("kind: Kustomization")).collect();
    let [composed, tenant] = kustomizations[..] else { panic!("{kustomizations:?}") };

    let objects = Composition::written(composed).objects();
    assert_eq!(container(&objects)["image"], "ghcr.io/trishanku-org/manager@sha256:DIGEST");
    assert_eq!(variable(&objects, "DEFAULT_GITCD_IMAGE"), Some("ghcr.io/trishanku-org/gitcd@sha256:DIGEST"));
    assert_eq!(objects["Deployment trishanku-manager"]["spec"]["replicas"], 3);
    assert!(objects.contains_key("NetworkPolicy trishanku-manager"), "{:?}", objects.keys());

    let objects = Composition::written(tenant).objects();
    for (name, object) in &objects {
        assert_eq!(object["metadata"]["namespace"], "team-a", "{name}");
        for subject in object["subjects"].as_array().into_iter().flatten() {
            assert_eq!(subject["namespace"], "team-a", "{name}");
        }
    }
    assert!(
        objects.contains_key("RoleBinding trishanku-manager")
            && objects.contains_key("NetworkPolicy trishanku-manager")
    );
}

#[test]
fn network_policies_name_what_the_manager_and_its_heavens_have() {
    let objects = Composition::of(&["network-policies", "injection"], "").objects();
    let policy = &objects["NetworkPolicy trishanku-manager"]["spec"];
    let pods = &objects["Deployment trishanku-manager"]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&policy["podSelector"]["matchLabels"], pods);
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    let names = |ports: &Value, field: &str| -> BTreeSet<String> {
        ports.as_array().unwrap().iter().map(|port| port[field].as_str().unwrap().to_owned()).collect()
    };
    let rules = policy["ingress"].as_array().unwrap();
    let allowed: BTreeSet<String> = rules.iter().flat_map(|rule| names(&rule["ports"], "port")).collect();
    assert_eq!(allowed, names(&container(&objects)["ports"], "name"));
    let text = policy["egress"].to_string();
    for label in [HEAVEN, MERGE] {
        assert!(text.contains(label), "{label}: {text}");
    }
    let (has_status, has_apiserver) = (r#""endPort":2499,"port":2481"#, r#"[{"port":443},{"port":6443}]"#);
    assert!(text.contains(has_status) && text.contains(has_apiserver), "{text}");
}

/// A minimal CRD for `ServiceMonitor` objects of the Prometheus operator.
const SERVICE_MONITORS: &str = r#"{
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": "ServiceMonitor", "plural": "servicemonitors"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true
        }}}]
    }
}"#;

#[tokio::test]
async fn a_strict_apiserver_takes_overlays_compositions_and_the_single_file() {
    let cluster = TestCluster::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let monitors = folder.path().join("monitors.json");
    std::fs::write(&monitors, SERVICE_MONITORS).unwrap();
    run(&cluster, &["apply", "--filename", &monitors.display().to_string()]);
    run(&cluster, &["apply", "--filename", &deploy().join("namespace/namespace.yaml").display().to_string()]);
    run(&cluster, &["wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com"]);
    let dry_run = |source: &str, path: &str| {
        run(&cluster, &["apply", "--server-side", source, path, "--dry-run=server", "--validate=strict"])
    };
    for (overlay, object) in [
        ("cluster-wide", "clusterrole.rbac.authorization.k8s.io/trishanku-manager"),
        ("namespaced", "role.rbac.authorization.k8s.io/trishanku-manager"),
        ("high-availability", "poddisruptionbudget.policy/trishanku-manager"),
        ("monitoring", "servicemonitor.monitoring.coreos.com/trishanku-manager"),
        ("tracing", "deployment.apps/trishanku-manager"),
    ] {
        let printed = dry_run("--kustomize", &deploy().join("overlays").join(overlay).display().to_string());
        assert!(printed.contains(object), "{overlay}: {printed}");
    }
    for components in [
        &all_but("namespaced")[..],
        &all_but("injection"),
        &["high-availability", "tracing", "network-policies"],
        &["namespaced", "monitoring", "network-policies"],
    ] {
        let composition = Composition::of(components, "");
        let printed = dry_run("--kustomize", &composition.path());
        assert_eq!(printed.lines().count(), composition.objects().len(), "{components:?}: {printed}");
    }
    let printed = dry_run("--filename", &deploy().join("../install.yaml").display().to_string());
    assert!(printed.contains("deployment.apps/trishanku-manager"), "{printed}");
}

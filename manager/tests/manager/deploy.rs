//! The manifests in `deploy/`.

use std::process::Command;

use trishanku_testkit::TestCluster;

use crate::process::{deploy, kubectl};

#[test]
fn the_definitions_that_are_deployed_are_those_of_the_types() {
    let printed = Command::new(env!("CARGO_BIN_EXE_manager")).arg("crds").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let deployed = std::fs::read(deploy().join("crd/definitions.yaml")).unwrap();
    assert!(
        printed.stdout == deployed,
        "run `cargo run -p trishanku-manager -- crds > deploy/kustomize/crd/definitions.yaml`"
    );
}

#[test]
fn who_has_read_enough_of_the_definitions_is_no_error() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be created");
    drop(reader);
    let printed = Command::new(env!("CARGO_BIN_EXE_manager")).arg("crds").stdout(writer).output().unwrap();
    assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
}

#[test]
fn the_published_flags_are_there() {
    let help = Command::new(env!("CARGO_BIN_EXE_manager")).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in [
        "--metrics-bind-address",
        "--health-probe-bind-address",
        "--leader-elect",
        "--default-etcd-image",
        "--default-git-image",
        "--default-gitcd-image",
        "--default-apiserver-image",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
    let wrong = Command::new(env!("CARGO_BIN_EXE_manager")).arg("--metrics-bind-address=here").output().unwrap();
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("IP:PORT"), "{wrong:?}");
    let hosts = "--github-api-hosts=github.example.org,https://other.example.org";
    let wrong = Command::new(env!("CARGO_BIN_EXE_manager")).arg(hosts).output().unwrap();
    let stderr = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && stderr.contains("https://other.example.org") && stderr.contains("not a host"),
        "{stderr}"
    );
}

#[tokio::test]
async fn a_strict_apiserver_takes_everything() {
    let cluster = TestCluster::start().await.unwrap();
    let run = |arguments: &[&str]| {
        let output = kubectl(&cluster, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let (default, samples) =
        (deploy().join("default").display().to_string(), deploy().join("samples").display().to_string());
    // A dry run creates nothing, so its prerequisites must exist.
    run(&["apply", "--filename", &deploy().join("namespace/namespace.yaml").display().to_string()]);
    run(&["apply", "--server-side", "--kustomize", &deploy().join("crd").display().to_string()]);
    for folder in [&default, &samples] {
        let shown = run(&["kustomize", folder]);
        assert!(!shown.is_empty());
    }
    run(&["wait", "--for=condition=Established", "crd/trishankuheavens.controllers.trishanku.org.trishanku.org"]);
    let output = run(&["apply", "--server-side", "--kustomize", &default, "--dry-run=server", "--validate=strict"]);
    for object in [
        "deployment.apps/trishanku-manager",
        "clusterrole.rbac.authorization.k8s.io/trishanku-manager",
        "serviceaccount/trishanku-manager",
    ] {
        assert!(output.contains(object), "{object}: {output}");
    }
    let output = run(&["apply", "--kustomize", &samples, "--dry-run=server", "--validate=strict"]);
    assert_eq!(output.matches("(server dry run)").count(), 5, "{output}");
    // Its pods meet the strictest pod security standard; otherwise the namespace would warn.
    let applied = kubectl(&cluster, &["apply", "--server-side", "--kustomize", &default]);
    let warned = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success() && !warned.contains("PodSecurity"), "{warned}");
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
async fn a_strict_apiserver_takes_every_overlay() {
    let cluster = TestCluster::start().await.unwrap();
    let run = |arguments: &[&str]| {
        let output = kubectl(&cluster, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let folder = tempfile::tempdir().unwrap();
    let monitors = folder.path().join("monitors.json");
    std::fs::write(&monitors, SERVICE_MONITORS).unwrap();
    run(&["apply", "--filename", &monitors.display().to_string()]);
    run(&["apply", "--filename", &deploy().join("namespace/namespace.yaml").display().to_string()]);
    run(&["wait", "--for=condition=Established", "crd/servicemonitors.monitoring.coreos.com"]);
    let table = [
        ("cluster-wide", "clusterrole.rbac.authorization.k8s.io/trishanku-manager"),
        ("namespaced", "role.rbac.authorization.k8s.io/trishanku-manager"),
        ("high-availability", "poddisruptionbudget.policy/trishanku-manager"),
        ("monitoring", "servicemonitor.monitoring.coreos.com/trishanku-manager"),
        ("tracing", "deployment.apps/trishanku-manager"),
    ];
    for (overlay, object) in table {
        let folder = deploy().join("overlays").join(overlay).display().to_string();
        let output = run(&["apply", "--server-side", "--kustomize", &folder, "--dry-run=server", "--validate=strict"]);
        assert!(output.contains(object), "{overlay}: {output}");
        let shown = run(&["kustomize", &folder]);
        let is_all = match overlay {
            "namespaced" => !shown.contains("kind: ClusterRole") && shown.contains("--namespaces=$(POD_NAMESPACE)"),
            "high-availability" => shown.contains("replicas: 3") && shown.contains("topologySpreadConstraints"),
            "tracing" => shown.contains("OTEL_EXPORTER_OTLP_ENDPOINT") && shown.contains("POD_NAMESPACE"),
            _ => true,
        };
        assert!(is_all, "{overlay}: {shown}");
    }
}

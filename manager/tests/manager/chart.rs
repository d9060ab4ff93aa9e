//! The single file and the Helm chart, which `hack/chart.sh` makes from `deploy/kustomize`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trishanku_testkit::TestCluster;

use crate::composition::{Composition, Objects, all_but, combinations, container, objects, variable};
use crate::process::{deploy, kubectl_program, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_single_file_and_the_chart_are_current() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let kubectl = kubectl_program().parent().map(Path::to_owned).filter(|folder| folder.is_absolute());
    let path = std::env::join_paths(kubectl.into_iter().chain(std::env::split_paths(&path))).unwrap();
    let checked = Command::new(root().join("hack/chart.sh")).arg("--check").env("PATH", path).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()));
    let file = std::fs::read_to_string(deploy().join("../install.yaml")).unwrap();
    assert_eq!(objects(&file), Composition::of(&[], "").objects());
}

#[test]
fn the_chart_has_the_version_of_the_manager() {
    let chart = std::fs::read_to_string(root().join("deploy/chart/trishanku/Chart.yaml")).unwrap();
    let chart: serde_json::Value = serde_saphyr::from_str(&chart).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&env!("CARGO_PKG_VERSION").into(), &env!("CARGO_PKG_VERSION").into())
    );
    let image = container(&Composition::of(&[], "").objects())["image"].clone();
    assert_eq!(image, concat!("ghcr.io/trishanku-org/manager:", env!("CARGO_PKG_VERSION")));
}

/// Helm: that of `HELM`, or the one that `hack/helm.sh` has built before. `None` if there is none.
fn helm() -> Option<PathBuf> {
    if let Some(program) = std::env::var_os("HELM") {
        return Some(program.into());
    }
    let cached = Command::new(root().join("hack/helm.sh")).arg("--cached").output().unwrap();
    let program = cached.status.success().then(|| String::from_utf8(cached.stdout).unwrap().trim().into());
    if program.is_none() {
        // Not `eprintln!`, whose output is hidden when a test passes.
        let message = format!(
            "THE HELM CHART IS NOT RENDERED, since Helm takes minutes to build; `make chart` does both: {}",
            String::from_utf8_lossy(&cached.stderr)
        );
        std::io::stderr().write_all(message.as_bytes()).unwrap();
    }
    program
}

/// Runs Helm without the settings of its user.
fn run_helm(helm: &Path, arguments: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut helm = Command::new(helm);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        helm.env(variable, home.path());
    }
    helm.current_dir(root()).args(arguments).output().unwrap()
}

fn on_chart(helm: &Path, command: &[&str], flags: &[&str]) -> Output {
    run_helm(helm, &[command, &["deploy/chart/trishanku"], flags].concat())
}

fn rendered(helm: &Path, values: &[String]) -> Objects {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let output = on_chart(helm, &["template", "trishanku"], &[&["--namespace=trishanku-system"], &values[..]].concat());
    assert!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    objects(&String::from_utf8(output.stdout).unwrap())
}

/// `--set` for a component, such as `highAvailability.enabled=true`.
fn enabled(component: &str) -> String {
    let mut words = component.split('-');
    let mut name = words.next().unwrap().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1);
        name.extend([&*first.to_uppercase(), rest]);
    }
    format!("--set={name}.enabled=true")
}

#[test]
fn the_chart_passes_helms_own_checks() {
    let Some(helm) = helm() else { return };
    let linted = on_chart(&helm, &["lint", "--strict"], &[]);
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
    let all: Vec<String> = all_but("injection").into_iter().map(enabled).collect();
    let linted = on_chart(&helm, &["lint", "--strict"], &all.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(linted.status.success(), "{}", String::from_utf8_lossy(&linted.stdout));
}

#[test]
fn helm_renders_what_kustomize_builds_with_each_combination_of_components() {
    let Some(helm) = helm() else { return };
    for components in combinations() {
        let values: Vec<String> = components.iter().map(|component| enabled(component)).collect();
        let mut expected = Composition::of(&components, "").objects();
        // Helm creates the namespace itself, before the chart's objects.
        expected.retain(|name, _| !name.starts_with("Namespace "));
        let mut rendered = rendered(&helm, &values);
        for (name, object) in &mut rendered {
            if name.starts_with("CustomResourceDefinition ") {
                let kept = object["metadata"].as_object_mut().unwrap().remove("annotations").unwrap();
                assert_eq!(kept, serde_json::json!({"helm.sh/resource-policy": "keep"}), "{name}");
            }
        }
        assert_eq!(rendered, expected, "{components:?}");
    }
}

#[test]
fn values_reach_the_manager_and_unknown_ones_are_errors() {
    let Some(helm) = helm() else { return };
    let digest = format!("sha256:{:064x}", 1);
    let values = [
        &format!("--set=image.repository=registry.example.org/manager,image.digest={digest}"),
        "--set=defaultImages.gitcd=registry.example.org/gitcd:1,log.level=info\\,kube=debug,log.format=text",
        "--set=extraArgs={--github-allow-http},pod.priorityClassName=system-cluster-critical",
        "--set=highAvailability.enabled=true,highAvailability.replicas=5,crds.enabled=false",
        "--set=tracing.enabled=true,tracing.endpoint=https://traces.example.org:4317",
    ];
    let objects = rendered(&helm, &values.map(str::to_owned));
    assert_eq!(container(&objects)["image"], format!("registry.example.org/manager@{digest}"));
    for (name, value) in [
        ("DEFAULT_GITCD_IMAGE", Some("registry.example.org/gitcd:1")),
        ("DEFAULT_APISERVER_IMAGE", None),
        ("LOG_LEVEL", Some("info,kube=debug")),
        ("LOG_FORMAT", Some("text")),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", Some("https://traces.example.org:4317")),
    ] {
        assert_eq!(variable(&objects, name), value, "{name}");
    }
    assert_eq!(container(&objects)["args"], serde_json::json!(["--leader-elect", "--github-allow-http"]));
    let deployment = &objects["Deployment trishanku-manager"]["spec"];
    assert_eq!(deployment["replicas"], 5);
    assert_eq!(deployment["template"]["spec"]["priorityClassName"], "system-cluster-critical");
    assert!(!objects.keys().any(|name| name.starts_with("CustomResourceDefinition ")), "{:?}", objects.keys());
    for wrong in [
        "log.format=xml",
        "image.digest=1",
        "highAvailability.replicas=1",
        "nodeSelector.a=b",
        "namespaced.enabled=true,injection.enabled=true",
    ] {
        let output = on_chart(&helm, &["template", "trishanku"], &[&format!("--set={wrong}")]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains("trishanku:"), "{wrong}: {stderr}");
    }
}

#[test]
fn values_are_quoted_and_fields_that_the_chart_has_are_replaced_or_refused() {
    let Some(helm) = helm() else { return };
    // Without quotes, these would be numbers and a boolean.
    let account = "metricsReader.serviceAccount";
    let values = [
        format!("--set-string={account}.name=0123,{account}.namespace=true"),
        "--set-string=pod.nodeSelector.gpu=true,pod.nodeSelector.generation=3".to_owned(),
        "--set=metricsReader.enabled=true,highAvailability.enabled=true,pod.securityContext.runAsNonRoot=true"
            .to_owned(),
        "--set=pod.topologySpreadConstraints[0].maxSkew=2".to_owned(),
        "--namespace=2026".to_owned(),
    ];
    let objects = rendered(&helm, &values);
    let subject = &objects["ClusterRoleBinding trishanku-metrics-reader"]["subjects"][0];
    assert_eq!((&subject["name"], &subject["namespace"]), (&"0123".into(), &"true".into()));
    assert_eq!(objects["Deployment trishanku-manager"]["metadata"]["namespace"], "2026");
    let pod = &objects["Deployment trishanku-manager"]["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], serde_json::json!({"gpu": "true", "generation": "3"}));
    // Once, and as the user wants them.
    assert_eq!(pod["securityContext"], serde_json::json!({"runAsNonRoot": true}));
    assert_eq!(pod["topologySpreadConstraints"], serde_json::json!([{"maxSkew": 2}]));
    // What is null stays as the chart has it.
    let enabled = "highAvailability.enabled=true";
    let with = |value: &str| rendered(&helm, &[format!("--set={enabled}{value}")]);
    let default = with("");
    for null in [",pod=null", ",pod.securityContext=null,pod.topologySpreadConstraints=null"] {
        assert_eq!(with(null), default, "{null}");
    }
    for (wrong, said) in [
        ("pod.containers[0].name=other", "pod.containers is set by the chart"),
        ("pod.serviceAccountName=other", "pod.serviceAccountName is set by the chart"),
        ("extraEnv[0].name=LOG_LEVEL", "LOG_LEVEL is set already: set log.level instead"),
        ("extraEnv[0].name=DEFAULT_GIT_IMAGE", "set defaultImages.git instead"),
        ("tracing.enabled=true,extraEnv[0].name=OTEL_TRACES_SAMPLER_ARG", "set tracing.ratio instead"),
        ("namespaced.enabled=true,extraEnv[0].name=METRICS_BIND_ADDRESS", "--metrics-bind-address"),
        ("extraEnv[0].name=HTTPS_PROXY,extraEnv[1].name=HTTPS_PROXY", "keep one of the two entries"),
        ("extraArgs={--leader-elect}", "extraArgs: the chart sets --leader-elect: remove it"),
        ("extraArgs={--github-allow-http,--leader-elect=false}", "the chart sets --leader-elect"),
        ("monitoring.enabled=true,extraArgs={--metrics-bind-address=:9090}", "disable monitoring.enabled"),
        // The value may be an argument of its own.
        ("namespaced.enabled=true,extraArgs={--namespaces,team}", "disable namespaced.enabled"),
        ("namespaced.enabled=true,extraArgs={--allow-own-namespace}", "the chart sets --allow-own-namespace"),
        ("injection.enabled=true,extraArgs={--inject-pods}", "the chart sets --inject-pods: remove it"),
    ] {
        let output = on_chart(&helm, &["template", "trishanku"], &[&format!("--set={wrong}")]);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(said), "{wrong}: {stderr}");
    }
    for allowed in ["extraArgs={--metrics-bind-address=:9090}", "extraArgs={--namespaces=a,--inject-pods}"] {
        rendered(&helm, &[format!("--set={allowed}")]);
    }
    let allowed = "--set=extraEnv[0].name=OTEL_TRACES_SAMPLER,extraEnv[0].value=always_on".to_owned();
    assert_eq!(variable(&rendered(&helm, &[allowed]), "OTEL_TRACES_SAMPLER"), Some("always_on"));
}

#[tokio::test]
async fn helm_installs_upgrades_and_uninstalls_and_the_definitions_stay() {
    let Some(helm) = helm() else { return };
    let cluster = TestCluster::start().await.unwrap();
    let kubeconfig = cluster.kubeconfig(None).display().to_string();
    // As in the documentation, with further words.
    let typed = |command: &str, more: &str| {
        let words: Vec<&str> = command.split(' ').skip(1).chain(more.split_whitespace()).collect();
        let output = run_helm(&helm, &[&words[..], &["--kubeconfig", &kubeconfig]].concat());
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let documentation = include_str!("../../../docs/operate.md");
    let line = |start: &str| {
        documentation.lines().find_map(|line| line.strip_prefix("$ ").filter(|line| line.starts_with(start)))
    };
    let install = line("helm upgrade --install").unwrap();
    let printed = typed(install, "");
    assert!(printed.contains("in all other namespaces"), "{printed}");
    let replicas = || {
        let path = "--output=jsonpath={.spec.replicas}";
        run(&cluster, &["get", "deployment", "trishanku-manager", "--namespace=trishanku-system", path])
    };
    assert_eq!(replicas(), "1");
    typed(install, "--set highAvailability.enabled=true,networkPolicies.enabled=true");
    assert_eq!(replicas(), "3");
    // A chart's folder `crds` would not be upgraded.
    let definition = "trishankuheavens.controllers.trishanku.org.trishanku.org";
    let shrunk = r#"[{"op": "remove", "path": "/spec/names/shortNames"}]"#;
    run(&cluster, &["patch", "crd", definition, "--type=json", &format!("--patch={shrunk}")]);
    typed(install, "--force-conflicts");
    let names = run(&cluster, &["get", "crd", definition, "--output=jsonpath={.spec.names.shortNames}"]);
    assert!(names.contains("heaven"), "{names}");
    typed("helm uninstall trishanku --namespace trishanku-system", "");
    let left = run(&cluster, &["get", "crd,deployments,clusterroles", "--all-namespaces", "--output=name"]);
    let ours: Vec<&str> = left.lines().filter(|name| name.contains("trishanku")).collect();
    assert_eq!(ours.len(), 3, "{ours:?}");
    assert!(ours.iter().all(|name| name.starts_with("customresourcedefinition")), "{ours:?}");
    // What kubectl has installed continues with Helm.
    let file = deploy().join("../install.yaml").display().to_string();
    run(&cluster, &["apply", "--server-side", "--force-conflicts", "--filename", &file]);
    let take =
        documentation.lines().filter_map(|line| line.strip_prefix("$ ")).find(|line| line.contains("--take-ownership"));
    typed(take.unwrap(), "--set highAvailability.enabled=true");
    assert_eq!(replicas(), "3");
}

//! The manifests in `deploy/`.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;
use trishanku_testkit::TestCluster;

use crate::composition::built;
use crate::process::{deploy, documented, kubectl, run};

#[test]
fn the_definitions_that_are_deployed_are_those_of_the_types() {
    let printed = Command::new(env!("CARGO_BIN_EXE_manager")).arg("crds").output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let deployed = std::fs::read(deploy().join("crd/definitions.yaml")).unwrap();
    assert!(
        printed.stdout == deployed,
        "run `cargo run -p trishanku-manager -- crds > deploy/kustomize/crd/definitions.yaml` and `hack/chart.sh`"
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

/// Starts the manager with a kube-apiserver that does not exist, and returns its first log line.
fn first_line(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = r#"{"clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "users": [{"name": "a"}], "current-context": "a"}"#;
    std::fs::write(&kubeconfig, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_manager"));
    command.env("KUBECONFIG", kubeconfig).envs(variables.iter().copied());
    command.args(["--metrics-bind-address=0", "--health-probe-bind-address=0"]).args(arguments);
    let mut manager = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(manager.stderr.take().unwrap()).read_line(&mut line).unwrap();
    manager.kill().unwrap();
    manager.wait().unwrap();
    line
}

#[test]
fn flags_and_their_variables_choose_the_format_and_the_level_of_logs() {
    for (arguments, variables) in [
        (&["--log-format=json"][..], &[][..]),
        (&[], &[("LOG_FORMAT", "json"), ("RUST_LOG", "info")]),
        // The flag takes precedence over its variable, and that over RUST_LOG.
        (
            &["--log-format=json", "--log-level=info"],
            &[("LOG_FORMAT", "text"), ("LOG_LEVEL", "off"), ("RUST_LOG", "off")],
        ),
        (&["--log-format=json"], &[("LOG_LEVEL", "info"), ("RUST_LOG", "off")]),
    ] {
        let line = first_line(arguments, variables);
        let parsed: Value = serde_json::from_str(&line).expect("it is an object");
        assert_eq!((&parsed["message"], &parsed["level"]), (&"starting".into(), &"INFO".into()), "{line}");
    }
    let line = first_line(&["--log-format=text"], &[("LOG_FORMAT", "json")]);
    assert!(line.contains(" INFO starting ") && line.contains(" leader_elect=false"), "{line}");
    for wrong in ["--log-format=xml", "--log-level=tank=loud"] {
        let output = Command::new(env!("CARGO_BIN_EXE_manager")).arg(wrong).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let value = wrong.split_once('=').unwrap().1;
        assert!(!output.status.success() && stderr.contains(value), "{stderr}");
    }
}

#[test]
fn one_file_sets_the_repository_of_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["samples", "samples-without-github"] {
        let copy = folder.path().join(name);
        std::fs::create_dir(&copy).unwrap();
        for file in std::fs::read_dir(deploy().join(name)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    let samples = folder.path().join("samples");
    let given = "repository=https://git.test/other.git\norganization=others\ncredentials=other-credentials\n";
    std::fs::write(samples.join("settings.env"), given).unwrap();
    let objects = built(&samples);
    assert_eq!(objects.len(), 5, "{:?}", objects.keys());
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains("git.example.org") && !text.contains("example-org"), "{text}");
    assert_eq!(text.matches("https://git.test/other.git").count(), 4, "{text}");
    assert_eq!(text.matches(r#"SecretName":"other-credentials""#).count(), 4, "{text}");
    assert_eq!(objects["GitHubRepository cluster"]["spec"]["organization"], "others");
    // The same without the repository on GitHub.
    let mut without = objects;
    without.remove("GitHubRepository cluster");
    assert_eq!(built(&folder.path().join("samples-without-github")), without);
}

#[tokio::test]
async fn a_strict_apiserver_takes_everything() {
    let cluster = TestCluster::start().await.unwrap();
    let run = |arguments: &[&str]| run(&cluster, arguments);
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
    // The documented ways to change logs, and to enforce that standard in a namespace of another name.
    for start in ["kubectl set env ", "kubectl label namespace trishanku-system "] {
        documented(&cluster, start);
    }
}

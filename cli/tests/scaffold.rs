//! A new controller builds, passes its own test, and is taken by a real kube-apiserver, before anybody has written a line of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trishanku::plane::Assets;
use trishanku_testkit::TestCluster;

const CHECKOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// An empty folder; the same for every run, so that what is built for it is built once.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("cannot remove {folder:?}: {error}"),
        _ => {}
    }
    std::fs::create_dir_all(&folder).expect("the folder is ours");
    folder
}

fn trishanku(here: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trishanku")).current_dir(here).args(args).output().expect("it was just built")
}

/// What it printed, if it went well.
fn said(output: &Output) -> String {
    let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{said}{complained}");
    assert!(!complained.contains("Warning:"), "{complained}");
    said
}

#[tokio::test]
async fn a_new_controller_builds_passes_its_test_and_is_taken_by_an_apiserver() {
    let parent = folder("scaffold");
    let made = said(&trishanku(&parent, &["new", "controller", "rain-gauge", "--framework", CHECKOUT]));
    assert!(made.contains("Made rain-gauge, a controller of RainGauge objects"), "{made}");
    let new = parent.join("rain-gauge");
    // The versions that are here: nothing is fetched, and what the workspace has built is used.
    std::fs::copy(Path::new(CHECKOUT).join("Cargo.lock"), new.join("Cargo.lock")).expect("both are ours");
    let built = Path::new(env!("CARGO_BIN_EXE_trishanku")).ancestors().nth(2).expect("a program is in target/debug");
    let mut tests = Command::new(env!("CARGO"));
    tests.args(["test", "--offline"]).current_dir(&new).env("CARGO_TARGET_DIR", built);
    let passed = said(&tests.output().expect("it runs this"));
    for test in [
        "the_definition_that_is_deployed_is_that_of_the_type",
        "what_is_asked_for_is_made_with_the_rights_that_are_deployed",
    ] {
        assert!(passed.contains(&format!("test {test} ... ok")), "{passed}");
    }

    let cluster = TestCluster::shared().await;
    let kubectl = Assets::find(None).expect("kubectl is where kube-apiserver is").program("kubectl");
    let kubectl = |args: &[&str]| {
        let mut command = Command::new(&kubectl);
        command.current_dir(&new).env("KUBECONFIG", cluster.kubeconfig(None)).args(args);
        said(&command.output().expect("it is there"))
    };
    // A dry run needs the namespace.
    kubectl(&["apply", "-f", "deploy/namespace.yaml"]);
    let deployed = kubectl(&["apply", "-k", "deploy", "--dry-run=server"]);
    let mut deployed: Vec<_> = deployed.lines().collect();
    deployed.sort_unstable();
    assert_eq!(
        deployed,
        [
            "clusterrole.rbac.authorization.k8s.io/rain-gauge created (server dry run)",
            "clusterrolebinding.rbac.authorization.k8s.io/rain-gauge created (server dry run)",
            "customresourcedefinition.apiextensions.k8s.io/raingauges.example.org created (server dry run)",
            "deployment.apps/rain-gauge created (server dry run)",
            "namespace/rain-gauge unchanged (server dry run)",
            "role.rbac.authorization.k8s.io/rain-gauge-lease created (server dry run)",
            "rolebinding.rbac.authorization.k8s.io/rain-gauge-lease created (server dry run)",
            "serviceaccount/rain-gauge created (server dry run)",
        ]
    );
}

#[test]
fn what_cannot_be_made_is_explained_and_nothing_is_left() {
    let parent = folder("scaffold-refused");
    std::fs::create_dir(parent.join("there")).expect("the folder is ours");
    for (args, code, expected) in [
        (["there", "--framework", CHECKOUT], 1, "is there already; choose another name"),
        (["Rain_Gauge", "--framework", CHECKOUT], 2, "lower-case letters, digits and hyphens can"),
        (["rain", "--framework", "/nowhere"], 2, "\"/nowhere\" cannot be read"),
    ] {
        let refused = trishanku(&parent, &[&["new", "controller"], &args[..]].concat());
        let complained = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{complained}");
        assert!(complained.contains(expected), "{complained}");
    }
    let left: Vec<_> =
        std::fs::read_dir(&parent).expect("it is there").map(|entry| entry.expect("it is ours").file_name()).collect();
    assert_eq!(left, ["there"]);
}

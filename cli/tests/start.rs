//! `trishanku up` with failures: each is reported in one clear message, and nothing is left running.
//!
//! The programs are scripts, so no Kubernetes is needed; the tests in `e2e/` use real ones.

mod sandbox;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use trishanku::headless::Topology;
use trishanku::plane::State;
use trishanku::plane::state::{Form, Settings};

use self::sandbox::{Sandbox, printed};

#[test]
fn a_component_that_dies_at_the_start_is_named_with_its_log() {
    let sandbox = Sandbox::with_gitcd("echo the repository is locked >&2; exit 4");
    let printed = sandbox.failing_up(&[]);
    assert!(printed.contains("gitcd exited with code 4"), "{printed}");
    assert!(printed.contains("| the repository is locked"), "{printed}");
    assert!(printed.contains("log/gitcd.log"), "{printed}");
}

#[test]
fn a_failing_preparation_is_named_too() {
    let sandbox = Sandbox::with_gitcd("exec sleep 60");
    sandbox.script("gitcd", "echo no space; exit 1");
    let printed = sandbox.failing_up(&[]);
    assert!(printed.contains("`gitcd init` exited with code 1"), "{printed}");
    assert!(printed.contains("| no space"), "{printed}");
}

#[test]
fn a_component_that_is_never_ready_is_given_up_and_ended() {
    let sandbox = Sandbox::with_gitcd("echo $$ > \"$(dirname \"$0\")/pid\"; exec sleep 60");
    let printed = sandbox.failing_up(&["--ready-within", "1"]);
    assert!(printed.contains("gitcd was not ready within 1s (no answer on port"), "{printed}");
    let pid = std::fs::read_to_string(sandbox.path().join("pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "process {pid} still runs");
}

#[test]
fn a_failure_in_the_background_is_reported_to_the_caller() {
    let sandbox = Sandbox::with_gitcd("echo the repository is locked >&2; exit 4");
    let printed = sandbox.failing_up(&["--detach"]);
    assert!(printed.contains("| the repository is locked"), "{printed}");
    let log = std::fs::read_to_string(sandbox.home().log("supervisor")).unwrap();
    assert!(log.contains("| the repository is locked"), "{log}");
}

#[test]
fn missing_programs_are_named_before_anything_is_made() {
    let sandbox = Sandbox::with_gitcd("exit 0");
    std::fs::remove_file(sandbox.path().join("kube-scheduler")).unwrap();
    let printed = sandbox.failing_up(&[]);
    assert!(printed.contains("no kube-scheduler") && printed.contains("make assets"), "{printed}");
    assert!(!sandbox.home().dir().exists());
}

#[test]
fn data_of_one_store_is_not_hidden_by_another() {
    let sandbox = Sandbox::with_gitcd("exit 0");
    std::fs::create_dir_all(sandbox.home().repository()).unwrap();
    std::fs::set_permissions(sandbox.home().dir(), PermissionsExt::from_mode(0o700)).unwrap();
    let printed = sandbox.failing_up(&["--store", "etcd"]);
    assert!(printed.contains("keeps its data in gitcd") && printed.contains("--dir"), "{printed}");
}

#[test]
fn a_damaged_state_file_stops_up_and_down() {
    let sandbox = Sandbox::with_gitcd("exit 0");
    std::fs::create_dir_all(sandbox.home().dir()).unwrap();
    std::fs::write(sandbox.home().state_file(), "{").unwrap();
    for command in ["up", "down", "status"] {
        let output = sandbox.trishanku(&[command]);
        assert_eq!(output.status.code(), Some(1));
        assert!(printed(&output).contains("state.json"), "{}", printed(&output));
    }
}

#[test]
fn down_without_anything_running_is_fine() {
    let sandbox = Sandbox::with_gitcd("exit 0");
    let output = sandbox.trishanku(&["down"]);
    assert!(output.status.success());
    assert_eq!(printed(&output), "Nothing was running\n");
    assert!(!sandbox.home().dir().exists());
    let output = sandbox.trishanku(&["status"]);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn kubectl_runs_with_the_kubeconfig_of_this_control_plane() {
    let sandbox = Sandbox::with_gitcd("exit 0");
    sandbox.script("kubectl", "echo \"$KUBECONFIG $*\"");
    let output = sandbox.trishanku(&["kubectl", "get", "pods"]);
    assert!(printed(&output).contains("there is no control plane"), "{}", printed(&output));
    sandbox.home().create().unwrap();
    std::fs::write(sandbox.home().kubeconfig(), "").unwrap();
    let output = sandbox.trishanku(&["kubectl", "config", "view", "-o", "json"]);
    let expected = format!("{} config view -o json\n", sandbox.home().kubeconfig().display());
    assert_eq!(printed(&output), expected);
}

#[test]
fn settings_are_kept_from_run_to_run() {
    let sandbox = Sandbox::with_gitcd("exit 1");
    sandbox.failing_up(&["--storage-media-type", "application/yaml"]);
    sandbox.failing_up(&[]);
    let state = State::load(&sandbox.home().state_file()).unwrap();
    assert_eq!(state.settings.storage_media_type, "application/yaml");
}

#[test]
fn kubectl_for_a_control_plane_that_does_not_run_says_so() {
    let sandbox = Sandbox::with_gitcd("echo no; exit 4");
    sandbox.failing_up(&[]);
    // As after a graceful stop: the credentials exist, nothing runs.
    std::fs::write(sandbox.home().kubeconfig(), "{}").expect("the folder is writable");
    let output = sandbox.trishanku(&["kubectl", "get", "pods"]);
    let printed = printed(&output);
    assert!(!output.status.success() && printed.contains("is not running; start it with"), "{printed}");
}

#[test]
fn a_name_and_a_folder_exclude_each_other() {
    let sandbox = Sandbox::with_gitcd("exit 4");
    let output = sandbox.trishanku(&["--name", "b", "status"]);
    assert!(printed(&output).contains("cannot be used with"), "{}", printed(&output));
}

#[test]
fn what_a_control_plane_consists_of_is_not_changed_behind_its_back() {
    let refused = |form: Form, args: &[&str], expected: &str| {
        let sandbox = Sandbox::with_gitcd("exit 4");
        sandbox.home().create().expect("the folder is writable");
        std::fs::create_dir_all(sandbox.home().heavens()).expect("the folder is writable");
        let settings = Settings { form, ..Settings::default() };
        let state = State { settings, ..State::default() };
        state.save(&sandbox.home().state_file()).expect("the folder is writable");
        let printed = printed(&sandbox.trishanku(args));
        assert!(printed.contains(expected) && printed.contains("--dir"), "{args:?}: {printed}");
    };
    refused(Form::Central, &["up", "--topology=star"], "is one kube-apiserver on one branch");
    refused(Form::Headless(Topology::Mesh), &["up", "--central"], "is a headless cluster");
    refused(Form::Manifests, &["up"], "is the heavens of files");
}

#[test]
fn a_control_plane_from_before_there_was_a_choice_stays_central() {
    let sandbox = Sandbox::with_gitcd("echo the old way >&2; exit 4");
    std::fs::create_dir_all(sandbox.home().repository()).expect("the folder is writable");
    let old = r#"{"phase": "stopped", "supervisor": null, "ports": null, "settings": {"store": "gitcd", "storage_media_type": "application/json"}, "components": []}"#;
    std::fs::write(sandbox.home().state_file(), old).expect("the folder is writable");
    let printed = printed(&sandbox.trishanku(&["up"]));
    assert!(printed.contains("gitcd exited with code 4") && printed.contains("| the old way"), "{printed}");
    assert!(!sandbox.home().heavens().exists());
}

const MISSPELT: &str = "\
apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: a}
spec:
  certficates: {controller: {userName: a}}
  app: {podTemplate: {spec: {
    contaners: [{name: a, image: a}]}}}
";

#[test]
fn manifests_that_cannot_be_run_are_named() {
    let sandbox = Sandbox::with_gitcd("exit 4");
    let file = sandbox.path().join("mine.yaml");
    for (text, expected) in [
        ("kind: ConfigMap\nmetadata: {name: a}\n", "there is no TrishankuHeaven and no AutomatedMerge"),
        ("kind: [", "mine.yaml\" is not YAML"),
        (
            MISSPELT,
            "line 7: spec.app.podTemplate.spec.contaners: unknown field: it would be dropped; did you mean \"containers\"?",
        ),
        (
            MISSPELT,
            "TrishankuHeaven a: spec.certficates: unknown field: it would be dropped; did you mean \"certificates\"?",
        ),
    ] {
        std::fs::write(&file, text).expect("the folder is writable");
        let printed = printed(&sandbox.trishanku(&["run", "-f", &file.display().to_string()]));
        assert!(printed.contains(expected), "{printed}");
    }
}

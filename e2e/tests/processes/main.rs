//! `trishanku run`: cluster manifests as processes.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod blue_green;
mod certificates;
mod machine;

use std::path::{Path, PathBuf};
use std::process::Command;

use trishanku::demo::{Kubectl, StandIn};
use trishanku_e2e::programs;

use crate::machine::Machine;

const REMOTE: &str = "https://git.example.org/cluster.git";

/// The samples of this project, and those of the folder that `PUBLISHED_SAMPLES` names.
fn samples(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(|name| folder.join(format!("{name}.yaml"))).collect()
}

fn ours() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize/samples");
    samples(&folder, &["shared", "kube-controller-manager", "kube-scheduler", "merge", "repository"])
}

/// A Deployment at one heaven gets its pods from its controller, and their nodes from the other heaven's.
fn works(machine: &Machine, scheduler: &str) {
    let kubectl = machine.kubectl(None);
    let node = StandIn::ensure(&kubectl).unwrap();
    let mut pods = kubectl.follow_pods("hello").unwrap();
    kubectl.run(&["create", "deployment", "hello", "--image=none", "--replicas=3"]).unwrap();
    assert_eq!(pods.until_bound(3, machine::PATIENCE), 3);
    let bound_by =
        machine.git(scheduler, &["log", "--no-merges", "--format=%cn", "--max-count=1", "--", "pods/default"]);
    assert_eq!(bound_by.trim(), scheduler);
    kubectl.remove_deployment("hello").unwrap();
    node.remove(&kubectl).unwrap();
}

#[test]
fn the_samples_run_with_another_repository() {
    let mut machine = Machine::new();
    let upstream = machine.path("up.git");
    let remote = format!("--remote-url={REMOTE}={}", upstream.display());
    machine.start(&ours(), &[&remote]);
    let printed = machine.printed();
    assert!(printed.contains("ignored GitHubRepository cluster: give --remote-url"), "{printed}");
    assert!(
        printed.contains("created the repository") && printed.contains("needs no Secret git-credentials"),
        "{printed}"
    );
    works(&machine, "kube-scheduler");
    // Another heaven's kube-apiserver has the same objects.
    let other: Kubectl = machine.kubectl(Some("kube-scheduler"));
    assert!(other.run(&["get", "namespaces", "--output=name"]).unwrap().contains("kube-system"));
    machine.stop();
    // The manifests are not recorded after a stop, so `up` would not help.
    let mut kubectl = Command::new(programs::folder().unwrap().join("trishanku"));
    let output = kubectl.arg("--dir").arg(machine.home().dir()).args(["kubectl", "get", "pods"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is not running") && said.contains("run --filename"), "{said}");
}

#[test]
fn an_unknown_flag_is_named_with_what_to_do() {
    let mut machine = Machine::new();
    let remote = format!("--remote-url={REMOTE}={}", machine.path("up.git").display());
    let flag = "--add-flag=kube-controller-manager/kube-controller-manager=--pod-eviction-timeout=5m";
    let printed = machine.fail(&ours()[..2], &[&remote, flag]);
    assert!(printed.contains("This version does not know --pod-eviction-timeout"), "{printed}");
    let remedy = "--drop-flag=kube-controller-manager/kube-controller-manager=--pod-eviction-timeout";
    assert!(printed.contains(remedy), "{printed}");
    for (arguments, expected) in [
        (&[][..], "no program is known for image \"mine:1\": give --image-program=mine:1=PATH"),
        (&["--image-program=mine=/nowhere/mine"], "there is no program \"/nowhere/mine\""),
        (&["--image-program=mine=sleep", "--drop-flag=app=--none"], "--drop-flag=app=--none: it has no such flag"),
        (&["--image-program=mine=sleep", "--remote-url=a=b"], "--remote-url=a=b: no remote has this URL"),
    ] {
        let file = machine.write("mine.yaml", MINE);
        let printed = machine.fail(&[file], arguments);
        assert!(printed.contains(expected), "{printed}");
    }
}

const MINE: &str = "apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: mine}
spec:
  certificates: {controller: {userName: me}}
  app: {podTemplate: {spec: {containers: [{name: app, image: 'mine:1'}]}}}
";

/// What a container is given in a pod also works for its process: paths, ports, files, variables.
#[test]
fn a_container_finds_what_its_pod_would_have() {
    let mut machine = Machine::new();
    let app = machine.write("app", include_str!("app.sh"));
    machine::executable(&app);
    let file = machine.write("mine.yaml", include_str!("mine.yaml"));
    let program = format!("--image-program=example.org/mine={}", app.display());
    machine.start(&[file], &[&program]);
    let kubectl = machine.kubectl(None);
    machine.until("the container to have finished its report", || {
        machine.path("plane/heavens/mine/volumes/out/done").exists()
    });
    let report = machine.read("plane/heavens/mine/volumes/out/report");
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[..3], ["greeting=hello, world", "secret=hush", "init=ran"], "{report}");
    // With the kubeconfig at the given path, it has reached its own kube-apiserver.
    assert!(lines[3].contains("\"major\": \"1\"") || report.contains("gitVersion"), "{report}");
    assert!(kubectl.run(&["get", "namespaces"]).is_ok());
    // Once killed, it restarts.
    machine.until("the container to run", || {
        machine.component("mine/app").is_some_and(|component| component.pid.is_some())
    });
    let before = machine.component("mine/app").unwrap();
    let id = rustix::process::Pid::from_raw(before.pid.unwrap() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    machine.until("the container to restart", || {
        machine.component("mine/app").is_some_and(|now| now.restarts == before.restarts + 1 && now.pid.is_some())
    });
    machine.stop();
}

#[test]
fn a_controller_that_exits_at_once_is_reported_at_once() {
    let machine = Machine::new();
    let app = machine.write("app", "#!/bin/sh\necho no such file: settings.yaml >&2\nexit 3\n");
    machine::executable(&app);
    let file = machine.write("mine.yaml", MINE);
    let program = format!("--image-program=mine={}", app.display());
    let trishanku = |arguments: &[&str]| {
        let mut command = Command::new(programs::folder().unwrap().join("trishanku"));
        let output = command.arg("--dir").arg(machine.home().dir()).args(arguments).output().unwrap();
        let printed = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
        (output.status.code(), printed)
    };
    let (code, printed) =
        trishanku(&["run", "--detach", "--ready-within=600", "--filename", &file.display().to_string(), &program]);
    // As `status` exits.
    assert_eq!(code, Some(3), "{printed}");
    for expected in [
        "mine/app keeps exiting with code 3 (3 restarts)",
        "| no such file: settings.yaml",
        "log/mine.app.log",
        "Degraded",
    ] {
        assert!(printed.contains(expected), "no {expected:?} in {printed}");
    }
    let (code, printed) = trishanku(&["status"]);
    assert_eq!(code, Some(3), "{printed}");
    assert!(printed.starts_with("degraded") && printed.contains("mine/app keeps exiting with code 3 ("), "{printed}");
    assert!(printed.contains("| no such file: settings.yaml") && printed.contains("log/mine.app.log"), "{printed}");
    let (code, printed) = trishanku(&["delete", "--yes"]);
    assert!(code == Some(0) && printed.contains("Stopped and deleted"), "{printed}");
    assert!(!machine.home().dir().exists());
}

#[test]
fn the_published_samples_run_with_what_changed_since_replaced() {
    let Some(folder) = std::env::var_os("PUBLISHED_SAMPLES").map(PathBuf::from) else {
        eprintln!("PUBLISHED_SAMPLES is not set: only the samples of this project were run");
        return;
    };
    let mut machine = Machine::new();
    let kind = |kind: &str| format!("controllers.trishanku.org_v1alpha1_{kind}");
    let names = ["trishankuheaven", "automatedmerge", "githubrepository"].map(kind);
    let mut files = samples(&folder, &names.each_ref().map(String::as_str));
    files.push(machine.write("suspended.yaml", include_str!("../../../examples/published/suspended.yaml")));
    let remote =
        format!("--remote-url=https://github.com/trishanku-org/sample-k8s={}", machine.path("up.git").display());
    // A scheduler configuration of 2022.
    let printed = machine.fail(&files, &[&remote]);
    assert!(printed.contains("does not know the configuration kubescheduler.config.k8s.io/v1beta3"), "{printed}");
    files.push(machine.write("scheduler.yaml", include_str!("../../../examples/published/scheduler.yaml")));
    machine.start(&files, &[&remote]);
    works(&machine, "sample-k8s-kube-scheduler");
    machine.stop();
}

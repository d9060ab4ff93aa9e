//! `trishanku doctor`, of a control plane whose programs are scripts.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod sandbox;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use trishanku::plane::State;

use self::sandbox::{Sandbox, printed, until};

/// A gitcd that has a version, and never becomes ready.
const GITCD: &str = concat!(
    "[ \"$1\" != version ] || { echo gitcd ",
    env!("CARGO_PKG_VERSION"),
    "; exit; }; echo HUSH; echo $$ >> \"$(dirname \"$0\")/pids\"; exec sleep 600"
);

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_gitcd(GITCD);
    for name in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] {
        sandbox.script(name, "echo Kubernetes v1.36.3");
    }
    sandbox
}

/// Returns the exit code and the checks.
fn doctor(sandbox: &Sandbox) -> (Option<i32>, Vec<Value>) {
    let output = sandbox.trishanku(&["doctor", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(said["dir"], sandbox.home().dir().display().to_string());
    let checks = said["checks"].as_array().unwrap().clone();
    let failures = checks.iter().filter(|check| check["status"] == "failure").count();
    assert_eq!((&said["failures"], failures > 0), (&failures.into(), output.status.code() == Some(3)), "{said:#}");
    for check in &checks {
        let is_problem = check["status"] == "failure" || check["status"] == "warning";
        assert_eq!(check["remedy"].is_string(), is_problem, "{check}");
        assert!(check["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{check}");
    }
    assert!(!said.to_string().contains("HUSH"), "{said:#}");
    (output.status.code(), checks)
}

fn status<'c>(checks: &'c [Value], name: &str) -> &'c str {
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {checks:#?}"))["status"].as_str().unwrap()
}

#[test]
fn without_a_control_plane_the_machine_is_checked_and_nothing_is_created() {
    let sandbox = sandbox();
    let (code, checks) = doctor(&sandbox);
    assert_eq!(code, Some(0), "{checks:#?}");
    for name in ["git", "gitcd", "kubernetes-programs", "leftovers"] {
        assert_eq!(status(&checks, name), "ok", "{checks:#?}");
    }
    assert_eq!(status(&checks, "supervisor"), "skipped");
    assert!(!sandbox.home().dir().exists());

    sandbox.script("kube-scheduler", "echo Kubernetes v1.35.0");
    assert_eq!(status(&doctor(&sandbox).1, "kubernetes-programs"), "warning");
    fs::remove_file(sandbox.path().join("kube-scheduler")).unwrap();
    let (code, checks) = doctor(&sandbox);
    assert_eq!((code, status(&checks, "kubernetes-programs")), (Some(3), "failure"));
}

#[test]
fn problems_of_a_control_plane_are_failures_with_remedies_until_they_are_gone() {
    let sandbox = sandbox();
    let mut up = sandbox.start(&["up", "--central"]);
    sandbox.processes("pids", 1);
    // The component is in the state once its start was noted.
    let is_known = || State::load(&sandbox.home().state_file()).unwrap().components.iter().any(|c| c.process.is_some());
    until("a component in the state", || is_known().then_some(()));
    let names = || {
        let mut names: Vec<_> =
            fs::read_dir(sandbox.home().dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let (code, checks) = doctor(&sandbox);
    // gitcd does not answer yet.
    assert_eq!((code, status(&checks, "store")), (Some(0), "skipped"), "{checks:#?}");
    for name in ["supervisor", "permissions", "certificates", "replaced-programs", "file-times"] {
        assert_eq!(status(&checks, name), "ok", "{checks:#?}");
    }
    assert_eq!(names(), before, "the measurement leaves nothing behind");

    up.kill();
    fs::set_permissions(sandbox.home().dir(), PermissionsExt::from_mode(0o755)).unwrap();
    let table = sandbox.trishanku(&["doctor"]);
    let said = printed(&table);
    assert_eq!(table.status.code(), Some(3), "{said}");
    for part in ["components run without the supervisor", " down` stops it", "mode 0755", "→ set it to 0700"] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }

    assert!(sandbox.trishanku(&["down"]).status.success());
    fs::set_permissions(sandbox.home().dir(), PermissionsExt::from_mode(0o700)).unwrap();
    let (code, checks) = doctor(&sandbox);
    assert_eq!((code, status(&checks, "supervisor"), status(&checks, "permissions")), (Some(0), "skipped", "ok"));

    fs::write(sandbox.home().state_file(), "{").unwrap();
    let (code, checks) = doctor(&sandbox);
    assert_eq!((code, status(&checks, "state")), (Some(3), "failure"));
}

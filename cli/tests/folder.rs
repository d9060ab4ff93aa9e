//! A control plane and its folder: one that is removed or moved away while it runs, `list`, and `delete`.
#![expect(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod sandbox;

use std::fs;

use serde_json::Value;
use trishanku::plane::registry::Registry;
use trishanku::plane::{Identity, State};

use self::sandbox::{PATIENCE, Sandbox, printed};

/// A gitcd that never becomes ready, and writes its process id.
const GITCD: &str = "echo $$ >> \"$(dirname \"$0\")/pids\"; exec sleep 600";
const UP: [&str; 2] = ["up", "--central"];

fn list(sandbox: &Sandbox) -> Vec<Value> {
    let output = sandbox.plain().args(["list", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_supervisor_stops_everything_when_its_folder_is_removed() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let mut up = sandbox.start(&UP);
    let gitcd = sandbox.processes("pids", 1);
    // The supervisor may write a file meanwhile.
    while fs::remove_dir_all(sandbox.home().dir()).is_err() {
        assert!(gitcd[0].is_alive(), "the folder cannot be removed");
    }
    let (code, printed) = up.exit();
    assert_eq!(code, Some(1), "{printed}");
    assert!(
        printed.contains("was removed, moved away or replaced") && printed.contains("trishanku delete"),
        "{printed}"
    );
    assert!(!gitcd[0].is_alive(), "{printed}");
    assert!(!sandbox.home().dir().exists(), "it was created again");
    assert_eq!(list(&sandbox), Vec::<Value>::new());
}

#[test]
fn a_new_control_plane_at_the_path_of_a_moved_one_is_not_disturbed_by_it() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let mut first = sandbox.start(&UP);
    let old = sandbox.processes("pids", 1);
    let away = sandbox.path().join("away");
    fs::rename(sandbox.home().dir(), &away).unwrap();
    let mut second = sandbox.start(&UP);
    let both = sandbox.processes("pids", 2);
    assert!(!old[0].is_alive(), "the old components end before the new ones start");
    let new = both.last().unwrap();
    let (code, printed) = first.exit();
    assert_eq!(code, Some(1), "{printed}");
    assert!(new.is_alive());
    let state = State::load(&sandbox.home().state_file()).unwrap();
    assert_eq!(state.supervisor.map(|supervisor| supervisor.pid), Some(second.id()));
    // The old one keeps its own data.
    assert!(State::load(&away.join("state.json")).is_ok());
    let down = sandbox.trishanku(&["down"]);
    assert_eq!(self::printed(&down), "Stopped; the data stays\n");
    assert!(!new.is_alive());
    second.exit();
}

#[test]
fn down_finds_the_processes_of_a_folder_that_is_gone() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let mut up = sandbox.start(&UP);
    let gitcd = sandbox.processes("pids", 1);
    // Its start is recorded in the folder first, and then in the registry.
    let registry = Registry::at(sandbox.path().join("state/trishanku/planes"));
    while !registry.entries().unwrap().iter().any(|entry| !entry.processes.is_empty()) {
        std::thread::yield_now();
    }
    up.kill();
    fs::rename(sandbox.home().dir(), sandbox.path().join("away")).unwrap();
    let listed = list(&sandbox);
    assert_eq!((listed.len(), &listed[0]["health"]), (1, &Value::from("orphaned")), "{listed:?}");
    let down = sandbox.trishanku(&["down"]);
    let said = printed(&down);
    assert!(
        down.status.success() && said.contains("ended gitcd") && said.contains("its state folder was gone"),
        "{said}"
    );
    assert!(gitcd[0].wait_ended(PATIENCE).unwrap());
    assert_eq!(list(&sandbox), Vec::<Value>::new());
    assert_eq!(printed(&sandbox.trishanku(&["down"])), "Nothing was running\n");
}

#[test]
fn all_control_planes_are_listed_by_folder_and_name() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let empty = sandbox.plain().arg("list").output().unwrap();
    assert!(printed(&empty).contains("There is no control plane"), "{empty:?}");
    let up = sandbox.start(&UP);
    sandbox.processes("pids", 1);
    // One with a name that has been stopped.
    let named = sandbox.path().join("data/trishanku/b");
    fs::create_dir_all(&named).unwrap();
    State::default().save(&named.join("state.json")).unwrap();
    // One whose state cannot be read.
    let damaged = sandbox.path().join("data/trishanku/c");
    fs::create_dir_all(&damaged).unwrap();
    fs::write(damaged.join("state.json"), "{").unwrap();
    fs::create_dir_all(sandbox.path().join("data/trishanku/other")).unwrap();

    let listed = list(&sandbox);
    let [b, c, running] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((&b["name"], &b["health"]), (&Value::from("b"), &Value::from("stopped")));
    assert_eq!((&c["name"], &c["health"]), (&Value::from("c"), &Value::Null));
    assert!(c["error"].as_str().unwrap().contains("is damaged"), "{c}");
    assert_eq!((&running["name"], &running["health"]), (&Value::Null, &Value::from("starting")));
    assert_eq!(running["dir"].as_str(), sandbox.home().dir().to_str());
    let started = Identity::of(up.id()).unwrap().unwrap().started_at().unwrap();
    let started = started.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert_eq!(running["since_unix_seconds"].as_u64(), Some(started));
    let table = sandbox.plain().arg("list").output().unwrap();
    let table = printed(&table);
    for part in ["NAME", "STATE", "SINCE", "HEAVENS", "FOLDER", "starting", "stopped", "unknown", "is damaged"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    let down = sandbox.trishanku(&["down"]);
    assert!(down.status.success(), "{down:?}");
    // A stopped one with a folder of its own stays in the list.
    assert_eq!(list(&sandbox)[2]["health"], "stopped");
}

#[test]
fn delete_stops_a_control_plane_and_removes_its_folder() {
    let sandbox = Sandbox::with_gitcd(GITCD);
    let mut up = sandbox.start(&UP);
    let gitcd = sandbox.processes("pids", 1);
    // Without a terminal there is no one to ask.
    let refused = sandbox.trishanku(&["delete"]);
    let said = printed(&refused);
    assert!(refused.status.code() == Some(1) && said.contains("give --yes"), "{said}");
    assert!(gitcd[0].is_alive());
    let deleted = sandbox.trishanku(&["delete", "--yes"]);
    let said = printed(&deleted);
    assert!(deleted.status.success() && said.contains("Stopped and deleted"), "{said}");
    assert!(!gitcd[0].is_alive() && !sandbox.home().dir().exists());
    let (_, printed_by_up) = up.exit();
    assert!(!printed_by_up.contains("removed"), "{printed_by_up}");
    assert_eq!(list(&sandbox), Vec::<Value>::new());
    let again = sandbox.trishanku(&["delete", "--yes"]);
    let said = printed(&again);
    assert!(again.status.code() == Some(1) && said.contains("there is no control plane in"), "{said}");
}

#[test]
fn delete_refuses_what_is_not_a_control_plane_s_alone() {
    let sandbox = Sandbox::with_gitcd("exit 4");
    let dir = sandbox.home().dir().to_owned();
    let refused = |expected: &str| {
        let output = sandbox.trishanku(&["delete", "--yes"]);
        let said = printed(&output);
        assert!(
            output.status.code() == Some(1) && said.contains(expected) && said.contains("nothing was deleted"),
            "{said}"
        );
    };
    fs::write(&dir, "a file").unwrap();
    refused("it is a file");
    fs::remove_file(&dir).unwrap();
    fs::create_dir_all(dir.join("log")).unwrap();
    refused("neither state.json nor a lock");
    assert!(dir.join("log").is_dir());
    fs::remove_dir_all(&dir).unwrap();
    sandbox.failing_up(&[]);
    fs::write(dir.join("thesis"), "").unwrap();
    refused("also contains \"thesis\"");
    assert!(dir.join("state.json").is_file() && dir.join("pki").is_dir());
    fs::remove_file(dir.join("thesis")).unwrap();
    // A link in the folder is removed, and not what it names.
    let kept = sandbox.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "").unwrap();
    std::os::unix::fs::symlink(&kept, dir.join("log/link")).unwrap();
    let link = sandbox.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    let by_link = sandbox.plain().arg("--dir").arg(&link).args(["delete", "--yes"]).output().unwrap();
    assert!(printed(&by_link).contains("it is a symbolic link"), "{by_link:?}");
    let deleted = sandbox.trishanku(&["delete", "-y"]);
    assert!(deleted.status.success() && !dir.exists() && kept.join("file").is_file(), "{deleted:?}");
}

#[test]
fn down_creates_nothing_in_a_folder_that_is_not_a_control_plane_s() {
    let sandbox = Sandbox::with_gitcd("exit 4");
    let dir = sandbox.home().dir().to_owned();
    fs::create_dir(&dir).unwrap();
    assert_eq!(printed(&sandbox.trishanku(&["down"])), "Nothing was running\n");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

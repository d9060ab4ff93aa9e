//! The programs of a gitcd that is killed.

use std::path::Path;

use crate::secrets::noting;
use crate::support::eventually;
use crate::world::Following;

/// Returns the process group of each process that runs.
fn groups() -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("the system is Linux").flatten();
    let stats = processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats.filter_map(|stat| group(&stat)).collect()
}

/// Returns the process group in a line of `/proc/PID/stat`, unless the process only waits to be reaped.
fn group(stat: &str) -> Option<u32> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    fields.nth(1)?.parse().ok().filter(|_| state != "Z")
}

/// `git` has a group of its own with all that it starts.
fn group_of(process: &Path) -> Option<u32> {
    let id = std::fs::read_to_string(process).ok()?;
    group(&std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).ok()?)
}

#[tokio::test]
async fn git_and_what_it_started_end_with_a_gitcd_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    // As ssh does, it lasts for as long as git keeps its standard input open. It never answers.
    let script = format!("echo $$ > '{}'\nexec 3>&1\nexec cat > /dev/null", started.display());
    let (_log, path) = noting(folder.path(), "ssh", &script);
    let following = Following::new("ssh://git@desk.example/up.git").variable("PATH", &path);
    let mut follower = following.start().await;
    let git = eventually("a connection over SSH", async || group_of(&started)).await;
    assert!(groups().contains(&git));
    follower.server.kill();
    eventually("the end of git", async || (!groups().contains(&git)).then_some(())).await;
}

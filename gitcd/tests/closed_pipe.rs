//! Commands whose output is closed early, as in `gitcd log | head`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Exit code: a reader that has seen enough is no failure.
const CLOSED: i32 = 0;

fn gitcd(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gitcd"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_DATA_HOME").args(args).stdin(Stdio::null());
    command
}

/// The writing end of a pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("create a pipe");
    drop(reader);
    writer.into()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_ends_quietly_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["version"][..],
        &["version", "--json"],
        &["completion", "bash"],
        &["init", "--repo=store.git"],
        &["log", "--repo=store.git"],
        &["log", "--repo=store.git", "--json"],
        &["at", "--repo=store.git", "now", "list", "--json"],
        &["verify", "--repo=store.git"],
        &["graph", "--repo=store.git"],
        &["graph", "--repo=store.git", "--json"],
        &["status", "--endpoint=http://127.0.0.1:1", "--json"],
    ] {
        let output = gitcd(folder.path(), args).stdout(closed()).output().unwrap();
        assert_eq!((output.status.code(), &*said(&output)), (Some(CLOSED), ""), "{args:?}");
    }
    // The closed output did not keep `init` from its work.
    let verified = gitcd(folder.path(), &["verify", "--repo=store.git"]).output().unwrap();
    assert!(verified.status.success(), "{}", said(&verified));
}

#[test]
fn an_error_that_cannot_be_printed_changes_no_status() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code) in
        [(&["verify", "--repo=missing.git"][..], 2), (&["log", "--repo=missing.git"], 1), (&["nonsense"], 2)]
    {
        let without_stderr = gitcd(folder.path(), args).stderr(closed()).output().unwrap();
        assert_eq!(without_stderr.status.code(), Some(code), "{args:?}");
    }
}

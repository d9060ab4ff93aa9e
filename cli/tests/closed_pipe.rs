//! Commands whose reader closes the pipe, as in `trishanku status | head`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The reader has read enough, which is not a failure.
const CLOSED: i32 = 0;

fn trishanku(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
    command.current_dir(folder).env("HOME", folder).env_remove("XDG_DATA_HOME").args(args).stdin(Stdio::null());
    command
}

/// A pipe without a reader.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe can be created");
    drop(reader);
    writer.into()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_command_ends_quietly_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("heaven.yaml"),
        "{apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1, kind: TrishankuHeaven, metadata: {name: a}, spec: {}}",
    )
    .unwrap();
    let framework = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["down"],
        &["completion", "bash"],
        &["lint", "-f", "heaven.yaml"],
        &["new", "controller", "rain-gauge", "--framework", framework],
    ] {
        let output = trishanku(folder.path(), args).stdout(closed()).output().unwrap();
        assert_eq!((output.status.code(), &*said(&output)), (Some(CLOSED), ""), "{args:?}");
    }
}

#[test]
fn help_and_a_pipeline_are_quiet_too() {
    let folder = tempfile::tempdir().unwrap();
    let output = trishanku(folder.path(), &["--help"]).stdout(closed()).output().unwrap();
    assert_eq!(said(&output), "");
    let pipeline = format!("{} status | true", env!("CARGO_BIN_EXE_trishanku"));
    let mut shell = Command::new("sh");
    let output = shell.args(["-c", &pipeline]).env("HOME", folder.path()).env_remove("XDG_DATA_HOME").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn an_error_that_cannot_be_printed_changes_no_status() {
    let folder = tempfile::tempdir().unwrap();
    let failed = trishanku(folder.path(), &["lint", "-f", "missing.yaml"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1), "{}", said(&failed));
    let without_stderr = trishanku(folder.path(), &["lint", "-f", "missing.yaml"]).stderr(closed()).output().unwrap();
    assert_eq!(without_stderr.status.code(), Some(1));
}

//! The manager when the reader of its output has gone, as in `manager crds | head`.

use std::process::Command;

#[test]
fn definitions_end_quietly_when_their_reader_has_gone() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be created");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_manager")).arg("crds").stdout(writer).output().unwrap();
    // The exit code of shells for a program that SIGPIPE killed.
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
}

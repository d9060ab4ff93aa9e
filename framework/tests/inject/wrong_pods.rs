//! Invalid pods do not compile.
//!
//! Runs the compiler on each program, with the library that this test was built with. A harness that builds the library
//! again, with all its dependencies, takes minutes.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/inject/wrong");

/// Returns the folder of this test and of the libraries that it was built with.
fn libraries() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Returns the library under test. Cargo keeps builds with other features beside it; the latest is that of the current sources.
fn library() -> PathBuf {
    let files = fs::read_dir(libraries()).unwrap().map(|entry| entry.unwrap().path());
    let libraries = files.filter(|file| {
        let name = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libtrishanku_framework-") && file.extension() == Some(OsStr::new("rlib"))
    });
    libraries.max_by_key(|file| file.metadata().unwrap().modified().unwrap()).expect("this test links the library")
}

/// Compiles a program. Returns its errors, each with line and column.
fn errors(program: &Path, library: &Path) -> Vec<String> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--error-format=short", "--cap-lints=allow"]);
    rustc.arg("--out-dir").arg(env!("CARGO_TARGET_TMPDIR"));
    rustc.arg("-L").arg(format!("dependency={}", libraries().display()));
    rustc.arg("--extern").arg(format!("trishanku_framework={}", library.display()));
    let output = rustc.current_dir(PROGRAMS).arg(program.file_name().unwrap()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let file = format!("{}:", program.file_name().unwrap().to_str().unwrap());
    let errors: Vec<_> = said.lines().filter_map(|line| line.strip_prefix(&file)).map(str::to_owned).collect();
    assert_eq!(output.status.success(), errors.is_empty(), "{said}");
    errors
}

#[test]
fn what_is_wrong_does_not_compile() {
    let library = library();
    let programs = fs::read_dir(PROGRAMS).unwrap().map(|entry| entry.unwrap().path());
    let errors: BTreeMap<_, _> = programs
        .map(|program| (program.file_stem().unwrap().to_str().unwrap().to_owned(), errors(&program, &library)))
        .collect();
    for (program, errors) in &errors {
        assert_eq!(errors.is_empty(), program == "nothing", "{program}: {errors:?}");
    }
    insta::assert_yaml_snapshot!(errors);
}

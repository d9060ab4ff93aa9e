//! `trishanku lint`.

use std::path::Path;
use std::process::{Command, Output};

fn lint(path: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
    command.args(["lint", "-f"]).arg(path).output().expect("the program has been built")
}

#[test]
fn our_samples_are_as_they_should_be_and_what_is_not_is_told_with_its_file() {
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize/samples");
    let output = lint(&samples);
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let bad = folder.path().join("bad.yaml");
    let text = "\
apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: a}
spec:
  skip: {app: true}
  gitcd: {git: {remotes: [{repo: 'https://me:secret@git.example.org/x'}]}}
";
    std::fs::write(&bad, text).expect("the temporary folder is writable");
    let output = lint(&bad);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let at = "TrishankuHeaven a: spec.gitcd.git.remotes[0].repo: a password does not belong into a URL";
    assert!(told.contains("bad.yaml") && told.contains(at) && !told.contains("secret@"), "{told}");
    let output = lint(&folder.path().join("none.yaml"));
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("none.yaml"), "{output:?}");
}

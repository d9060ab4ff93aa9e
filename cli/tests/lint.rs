//! `trishanku lint`.

use std::path::Path;
use std::process::{Command, Output};

fn lint(path: &Path) -> Output {
    lint_with(path, &[])
}

fn lint_with(path: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
    command.args(["lint", "-f"]).arg(path).args(flags).output().expect("the program has been built")
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

#[test]
fn folders_in_folders_are_looked_into_if_that_is_asked_for() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let inner = folder.path().join("b/c");
    std::fs::create_dir_all(&inner).expect("the temporary folder is writable");
    std::os::unix::fs::symlink(folder.path(), inner.join("back.yaml")).expect("the temporary folder is writable");
    let bad = |name: &str| {
        format!(
            "{{apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1, kind: TrishankuHeaven, metadata: {{name: {name}}}, spec: {{}}}}"
        )
    };
    for (path, text) in [
        ("z.yaml", bad("outer")),
        ("b/a.json", r#"{"apiVersion": "v1", "kind": "ConfigMap"}"#.to_owned()),
        ("b/c/list.yml", format!("{{apiVersion: v1, kind: List, items: [{}]}}", bad("inner"))),
        ("b/c/notes.txt", "no: [manifest".to_owned()),
    ] {
        std::fs::write(folder.path().join(path), text).expect("the temporary folder is writable");
    }
    let told = |flags: &[&str]| {
        let output = lint_with(folder.path(), flags);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut objects: Vec<_> = text.lines().map(|line| line.split(": spec").next().unwrap_or_default()).collect();
        objects.dedup();
        objects.iter().map(|object| (*object).to_owned()).collect::<Vec<_>>()
    };
    let at = |path: &str, name: &str| format!("{}: TrishankuHeaven {name}", folder.path().join(path).display());
    assert_eq!(told(&[]), [at("z.yaml", "outer")]);
    for flag in ["-R", "--recursive"] {
        assert_eq!(told(&[flag]), [at("z.yaml", "outer"), at("b/c/list.yml", "inner")]);
    }
}

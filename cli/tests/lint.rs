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
fn our_samples_are_as_they_should_be_and_what_is_not_is_reported_with_its_file() {
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
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let at = "TrishankuHeaven a: spec.gitcd.git.remotes[0].repo: a password does not belong in a URL";
    assert!(stdout.contains("bad.yaml") && stdout.contains(at) && !stdout.contains("secret@"), "{stdout}");
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
    let reported = |flags: &[&str]| {
        let output = lint_with(folder.path(), flags);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut objects: Vec<_> = text.lines().map(|line| line.split(": spec").next().unwrap_or_default()).collect();
        objects.dedup();
        objects.iter().map(|object| (*object).to_owned()).collect::<Vec<_>>()
    };
    let at = |path: &str, name: &str| format!("{}: TrishankuHeaven {name}", folder.path().join(path).display());
    assert_eq!(reported(&[]), [at("z.yaml", "outer")]);
    for flag in ["-R", "--recursive"] {
        assert_eq!(reported(&[flag]), [at("z.yaml", "outer"), at("b/c/list.yml", "inner")]);
    }
}

#[test]
fn labels_of_namespaces_and_copies_of_definitions_in_other_files_count() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("the folder is writable");
    let heaven = "{apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1, kind: TrishankuHeaven, \
         metadata: {name: shop, namespace: team}, spec: {skip: {app: true}, certificates: {controller: {userName: u}}}}";
    write("heaven.yaml", heaven);
    assert!(lint(folder.path()).status.success(), "it may be the heaven of another machine");
    let namespace =
        "{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {controllers.trishanku.org/inject: shop}}}";
    for namespaces in [namespace, &format!("{{apiVersion: v1, kind: List, items: [{namespace}]}}")] {
        write("namespaces.yaml", namespaces);
        let output = lint(folder.path());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("heaven.yaml") && text.contains("$(REPLICA)") && text.contains("\"team\""), "{text}");
        assert_eq!((text.lines().count(), output.status.code()), (1, Some(1)), "{text}");
    }

    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let write =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("the folder is writable");
    let definition = include_str!("../../examples/heavens/deploy/crd.yaml");
    write("a.yaml", definition);
    write("b.yaml", definition);
    assert!(lint(folder.path()).status.success(), "copies are the same definition");
    write("b.yaml", &definition.replacen("served: true", "served: false", 1));
    let output = lint(folder.path());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let reported = text.lines().filter(|line| line.contains("another copy of this definition differs")).count();
    assert_eq!((reported, output.status.code()), (2, Some(1)), "{text}");
}

#[test]
fn manifests_and_files_of_a_branch_are_checked_as_a_gitcd_checks_them() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("it is in a folder")).expect("the temporary folder is writable");
        std::fs::write(&path, text).expect("the temporary folder is writable");
        path
    };
    let map = |data: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {data}\n");
    let report = |path: &Path| {
        let output = lint(path);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let port = "data.port: is a number, but must be a string; put it in quotes";
    // Several documents, each with the lines of the file.
    let file = write("m/maps.yaml", &format!("{}---\n{}---\nspelled: no manifest\n", map("{}"), map("{port: 8080}")));
    assert_eq!(report(&file), (Some(1), format!("{}: line 9: {port}\n", file.display())));
    let list = write(
        "m/list.json",
        r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"ConfigMap","data":{"port":1}}]}"#,
    );
    assert_eq!(report(&list), (Some(1), format!("{}: line 1: items[0].{port}\n", list.display())));
    let unknown = write("m/unknown.yaml", &(map("{}") + "dota: {}\n"));
    let (code, text) = report(&unknown);
    assert!(code == Some(0) && text.contains("line 5: dota: warning: Kubernetes does not know"), "{code:?} {text}");
    // A file of a branch, by its path.
    let file = write("b/configmaps/default/a", &map("{port: 8080}"));
    assert_eq!(report(&file), (Some(1), format!("{}: line 4: {port}\n", file.display())));
    write("b/configmaps/default/b", &map("{}"));
    write("b/namespaces/default", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n");
    write("b/README.md", "# Ours\n");
    write("b/.git/config", "[core]\n");
    let (code, text) = report(&folder.path().join("b"));
    let mut lines: Vec<_> = text.lines().map(|line| line.rsplit_once("/b/").map_or(line, |(_, rest)| rest)).collect();
    lines.sort_unstable();
    assert_eq!(code, Some(1));
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("README.md: it is neither a JSON nor a YAML object"), "{text}");
    assert_eq!(lines[1], format!("configmaps/default/a: line 4: {port}"));
    assert!(
        lines[2].starts_with("configmaps/default/b: line 3: metadata.name: is \"a\", but the file's name is \"b\""),
        "{text}"
    );
}

#[test]
fn definitions_that_are_given_are_used() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let text = "\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gates.example.com}
spec:
  group: example.com
  names: {kind: Gate, plural: gates}
  scope: Namespaced
  versions:
  - name: v1
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
apiVersion: example.com/v1
kind: Gate
metadata: {name: a}
spec: {size: big}
";
    let file = folder.path().join("all.yaml");
    std::fs::write(&file, text).expect("the temporary folder is writable");
    let output = lint(&file);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("line 15: spec.size: is a string, but must be a whole number"), "{stdout}");
    assert_eq!(output.status.code(), Some(1), "{stdout}");
}

const TEMPLATE: &str = "\
apiVersion: controllers.trishanku.org.trishanku.org/v1alpha1
kind: TrishankuHeaven
metadata: {name: a}
spec:
  certificates: {controller: {userName: a}}
  app:
    podTemplate:
      metadata: {labels: {app: a}}
      spec:
        containers:
        - name: a
          image: a
          env: [{name: A, value: b}]
        serviceAccountName: a
";

#[test]
fn misspelt_fields_of_a_pod_template_are_found_with_their_line() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let file = folder.path().join("heaven.yaml");
    let findings = |text: &str| {
        std::fs::write(&file, text).expect("the temporary folder is writable");
        let output = lint(&file);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines =
            text.lines().map(|line| line.rsplit_once("heaven.yaml: ").map_or(line, |(_, rest)| rest).to_owned());
        (output.status.code(), lines.collect::<Vec<_>>())
    };
    assert_eq!(findings(TEMPLATE), (Some(0), Vec::new()));
    for (right, wrong, line, field, meant) in [
        ("containers:", "contaners:", 10, "spec.contaners", "containers"),
        ("image:", "Image:", 12, "spec.containers[0].Image", "image"),
        ("value:", "vlaue:", 13, "spec.containers[0].env[0].vlaue", "value"),
        ("serviceAccountName:", "serviceAcountName:", 14, "spec.serviceAcountName", "serviceAccountName"),
        ("{labels:", "{lables:", 8, "metadata.lables", "labels"),
    ] {
        let (code, lines) = findings(&TEMPLATE.replace(right, wrong));
        let expected = format!(
            "line {line}: spec.app.podTemplate.{field}: unknown field: it would be dropped; did you mean \"{meant}\"?"
        );
        assert!(code == Some(1) && lines.contains(&expected), "{wrong}: {lines:#?}");
    }
    let (_, lines) = findings(&TEMPLATE.replace("containers:", "contaners:"));
    let missing = "spec.app.podTemplate.spec.containers: Required value: a pod needs a container";
    assert!(lines.iter().any(|line| line.ends_with(missing)), "{lines:#?}");
    // A known field with a wrong value, and an item of a list.
    let (_, lines) = findings(&TEMPLATE.replace("value: b", "value: 7"));
    assert!(lines.iter().any(|line| line.starts_with("line 13: ") && line.contains("must be a string")), "{lines:#?}");
    let item = TEMPLATE.replace("serviceAccountName", "serviceAccountNme").replace('\n', "\n  ");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n- {item}");
    let (_, lines) = findings(&list);
    assert!(
        lines.iter().any(|line| line.contains("items[0].spec.app.podTemplate.spec.serviceAccountNme: unknown")),
        "{lines:#?}"
    );
}

#[test]
fn a_wrong_group_and_a_kind_in_the_wrong_case_are_named_with_the_right_one() {
    let folder = tempfile::tempdir().expect("the temporary folder is writable");
    let file = folder.path().join("heaven.yaml");
    let right = "controllers.trishanku.org.trishanku.org/v1alpha1";
    for (from, to, expected) in [
        (right, "controllers.trishanku.org/v1alpha1", "apiVersion: there is no kind TrishankuHeaven in the group"),
        (right, "controllers.trishanku.org.trishanku.org/v1", "apiVersion: there is no version \"v1\": use"),
        ("TrishankuHeaven", "trishankuheaven", "kind: there is no kind \"trishankuheaven\""),
    ] {
        std::fs::write(&file, TEMPLATE.replace(from, to)).expect("the temporary folder is writable");
        let output = lint(&file);
        let stdout = String::from_utf8_lossy(&output.stdout);
        let remedy = if to == "trishankuheaven" { "use TrishankuHeaven" } else { right };
        assert!(output.status.code() == Some(1) && stdout.contains(expected) && stdout.contains(remedy), "{stdout}");
    }
}

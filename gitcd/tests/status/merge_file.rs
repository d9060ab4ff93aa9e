//! `gitcd merge-file` without Git.

use crate::work::Work;
use crate::{gitcd, text};

pub(crate) fn pod(web: &str, log: &str) -> String {
    format!(
        r#"{{
  "kind": "Pod",
  "apiVersion": "v1",
  "metadata": {{
    "name": "shop",
    "namespace": "default",
    "uid": "u"
  }},
  "spec": {{
    "containers": [
      {{
        "name": "web",
        "image": "{web}"
      }},
      {{
        "name": "log",
        "image": "{log}"
      }}
    ]
  }}
}}
"#
    )
}

/// Merges three files; returns the exit code, the merged content and the error output.
fn merged(arguments: &[&str], [ours, base, theirs]: [&str; 3]) -> (Option<i32>, String, String) {
    let work = Work::new();
    for (name, content) in [("ours", ours), ("base", base), ("theirs", theirs)] {
        work.write(name, content);
    }
    let repo = format!("--repo={}", work.path("").display());
    let files = ["ours", "base", "theirs"].map(|name| work.path(name).display().to_string());
    let words = [&["merge-file", &repo], arguments, &[&files[0], &files[1], &files[2]]].concat();
    let output = gitcd(&words);
    let ours = if arguments.contains(&"-p") { text(&output.stdout) } else { work.read("ours") };
    (output.status.code(), ours, text(&output.stderr))
}

#[test]
fn different_fields_are_both_kept_and_the_file_stays_readable() {
    let (code, ours, stderr) = merged(&[], [&pod("a:2", "b:1"), &pod("a:1", "b:1"), &pod("a:1", "b:2")]);
    assert_eq!((code, ours, stderr), (Some(0), pod("a:2", "b:2"), String::new()));
    let (code, printed, _) = merged(&["-p"], [&pod("a:2", "b:1"), &pod("a:1", "b:1"), &pod("a:1", "b:2")]);
    assert_eq!((code, printed), (Some(0), pod("a:2", "b:2")));
}

#[test]
fn a_conflict_is_decided_and_reported() {
    let sides = [&*pod("a:2", "b:1"), &*pod("a:1", "b:1"), &*pod("a:3", "b:1")];
    for (arguments, kept, lost) in [(&["--ours"][..], "a:2", "a:3"), (&["--theirs"], "a:3", "a:2")] {
        let (code, ours, stderr) = merged(&[arguments, &["--key=pods/default/shop"]].concat(), sides);
        assert_eq!((code, &*ours), (Some(1), &*pod(kept, "b:1")));
        let line = format!("pods/default/shop: spec.containers[name=web].image: kept \"{kept}\", lost \"{lost}\"\n");
        assert_eq!(stderr, line);
    }
    // Without a side given, the result is the same for both orders.
    let (code, one, _) = merged(&[], sides);
    let (_, other, _) = merged(&[], [sides[2], sides[1], sides[0]]);
    assert_eq!((code, &one), (Some(1), &other));
    let (code, driven, stderr) = merged(&["--driver"], sides);
    assert_eq!((code, driven), (Some(0), one));
    assert!(stderr.contains("kept"), "{stderr}");
}

#[test]
fn yaml_stays_yaml() {
    let map = |tea: u8, cup: u8| {
        format!("kind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\ndata:\n  tea: '{tea}'\n  cup: '{cup}'\n")
    };
    let (code, ours, _) = merged(&[], [&map(2, 1), &map(1, 1), &map(1, 2)]);
    assert_eq!((code, ours), (Some(0), map(2, 2)));
}

#[test]
fn files_added_by_both_have_no_base() {
    let (code, ours, stderr) = merged(&["--ours"], [&pod("a:1", "b:1"), "", &pod("a:1", "b:2")]);
    assert_eq!((code, ours), (Some(1), pod("a:1", "b:1")));
    assert!(stderr.contains("spec.containers[name=log].image: kept \"b:1\""), "{stderr}");
}

#[test]
fn a_broken_file_is_an_error_and_ours_stays() {
    let (good, other) = (pod("a:1", "b:1"), pod("a:2", "b:1"));
    let cut = &other[..200];
    let marked = "<<<<<<< ours\n  tea: 3\n=======\n  tea: 4\n>>>>>>> theirs\n";
    for (sides, broken) in [
        ([cut, &*good, &*pod("a:3", "b:1")], "ours"),
        ([&*other, &*good, cut], "theirs"),
        ([&*other, &*good, marked], "theirs"),
        ([cut, "", "{\"kind\":"], "ours"),
        ([&*other, cut, "just text\n"], "theirs"),
    ] {
        for arguments in [&["--key=pods/default/shop"][..], &["--driver", "--key=pods/default/shop"]] {
            let (code, ours, stderr) = merged(arguments, sides);
            assert_eq!((code, &*ours), (Some(2), sides[0]), "{stderr}");
            let start = format!("gitcd: pods/default/shop: {broken} (");
            assert!(stderr.starts_with(&start) && stderr.lines().count() == 1 && !stderr.contains("tea"), "{stderr}");
        }
        let (code, printed, _) = merged(&["-p"], sides);
        assert_eq!((code, &*printed), (Some(2), ""));
    }
    // Files that are no objects are merged as a whole.
    let (code, ours, _) = merged(&["--theirs"], ["one\n", "none\n", "other\n"]);
    assert_eq!((code, &*ours), (Some(1), "other\n"));
}

#[test]
fn a_missing_file_is_an_error() {
    let output = gitcd(&["merge-file", "/nowhere/a", "/nowhere/b", "/nowhere/c"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot read /nowhere/a"), "{output:?}");
    assert_eq!(gitcd(&["merge-file", "only-one"]).status.code(), Some(2));
}

#[test]
fn an_object_whose_last_finalizer_goes_is_left_to_a_person() {
    let ending = |finalizers: &str| {
        let metadata =
            format!(r#""name":"a","uid":"u","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[{finalizers}]"#);
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{{metadata}}}}}"#)
    };
    let (ours, base, theirs) = (ending(r#""x/a""#), ending(r#""x/a","x/b""#), ending(r#""x/b""#));
    let (code, left, stderr) = merged(&["--driver", "--key=configmaps/shop/a"], [&ours, &base, &theirs]);
    assert_eq!((code, left), (Some(1), ours), "Git must stop, as a merge driver cannot delete a file");
    assert!(stderr.contains("configmaps/shop/a: being deleted"), "{stderr}");
}

#[test]
fn versions_of_different_objects_are_no_versions_of_one() {
    let (ours, theirs) = (pod("a:2", "b:1"), pod("a:1", "b:2"));
    for (from, to, field) in [
        ("\"name\": \"shop\"", "\"name\": \"bar\"", "metadata.name"),
        ("\"namespace\": \"default\"", "\"namespace\": \"other\"", "metadata.namespace"),
        ("\"kind\": \"Pod\"", "\"kind\": \"PodTemplate\"", "kind"),
    ] {
        let other = |text: &str| text.replace(from, to);
        for sides in [
            [&*ours, &*other(&pod("a:1", "b:1")), &*theirs],
            [&*ours, &*other(&pod("a:1", "b:1")), &*other(&theirs)],
            [&*other(&ours), &*pod("a:1", "b:1"), &*theirs],
        ] {
            let (code, left, stderr) = merged(&["--driver", "--key=pods/default/shop"], sides);
            assert_eq!((code, &*left), (Some(2), sides[0]), "{stderr}");
            assert!(stderr.starts_with(&format!("gitcd: pods/default/shop: {field} is ")), "{stderr}");
        }
    }
    // An object that was deleted and created again has another `uid`, and is merged.
    let again = theirs.replace("\"uid\": \"u\"", "\"uid\": \"v\"");
    let (code, ..) = merged(&["--driver"], [&ours, &pod("a:1", "b:1"), &again]);
    assert_eq!(code, Some(0));
}

/// A Secret as `kubectl apply` stores it.
fn secret(kind: &str, value: &str) -> String {
    let applied = format!(r#"{{\"data\":{{\"password\":\"{value}\"}}}}"#);
    format!(
        r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{"name":"s","namespace":"n","uid":"u","annotations":{{
        "kubectl.kubernetes.io/last-applied-configuration":"{applied}","own":"{value}"}}}},"data":{{"password":"{value}"}},
        "stringData":{{"plain":"{value}"}},"type":"Opaque"}}"#
    )
}

#[test]
fn nothing_of_a_secret_is_printed() {
    let sides = |kind: &str| ["aHVudGVyMg==", "b2xk", "aHVudGVyMw=="].map(|value| secret(kind, value));
    let has_value = |stderr: &str| ["aHVudGVy", "b2xk"].iter().any(|value| stderr.contains(value));
    let [ours, base, theirs] = sides("Secret");
    let (code, _, stderr) = merged(&["--key=secrets/n/s"], [&ours, &base, &theirs]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("secrets/n/s: data.password: kept (secret), lost (secret)\n"), "{stderr}");
    assert!(stderr.contains("last-applied-configuration") && !has_value(&stderr), "{stderr}");
    let [ours, base, theirs] = sides("ConfigMap");
    let (_, _, stderr) = merged(&[], [&ours, &base, &theirs]);
    assert!(has_value(&stderr), "{stderr}");
    let (_, _, stderr) = merged(&["--secret-kinds=ConfigMap"], [&ours, &base, &theirs]);
    assert!(
        stderr.contains(": data: kept (secret)") && !stderr.contains("password: kept") && !has_value(&stderr),
        "{stderr}"
    );
}

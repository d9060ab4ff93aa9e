//! `gitcd merge-file` as the merge driver of the stock `git`.

use crate::merge_file::pod;
use crate::work::Work;
use crate::{gitcd, text};

const FILE: &str = "pods/default/shop";

/// A clone whose branches `main` and `other` have changed `FILE` differently.
fn diverged(ours: &str, theirs: &str) -> Work {
    let work = Work::new();
    work.write(FILE, &pod("a:1", "b:1"));
    work.commit("base");
    work.git(&["checkout", "-qb", "other"]);
    work.write(FILE, theirs);
    work.commit("theirs");
    work.git(&["checkout", "-q", "main"]);
    work.write(FILE, ours);
    work.commit("ours");
    work
}

fn install(work: &Work) {
    let output = gitcd(&["merge-file", "--install", &format!("--repo={}", work.path("").display())]);
    assert!(output.status.success(), "{output:?}");
}

/// Different containers of the same pod on neighbouring lines: Git alone would leave conflict markers.
fn different() -> Work {
    diverged(&pod("a:2", "b:1"), &pod("a:1", "b:2"))
}

#[test]
fn installing_twice_changes_nothing_and_keeps_what_is_there() {
    let work = Work::new();
    work.write(".git/info/attributes", "*.png -text\n");
    install(&work);
    let config = work.read(".git/config");
    install(&work);
    assert_eq!(work.read(".git/config"), config);
    assert_eq!(work.read(".git/info/attributes"), "* merge=trishanku\n*.png -text\n");
    assert_eq!(work.git(&["check-attr", "merge", FILE]), format!("{FILE}: merge: trishanku\n"));
    let nowhere = tempfile::tempdir().unwrap();
    let output = gitcd(&["merge-file", "--install", &format!("--repo={}", nowhere.path().display())]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no repository"), "{output:?}");
}

#[test]
fn a_merge_keeps_both_changes() {
    let work = diverged(
        &pod("a:2", "b:1"),
        &pod("a:1", "b:1").replace("\"image\": \"a:1\"", "\"image\": \"a:1\",\n        \"tty\": true"),
    );
    let without = work.run(&["merge", "-q", "other"], "");
    assert!(!without.status.success() && work.read(FILE).contains("<<<<<<<"), "Git alone leaves conflict markers");
    work.git(&["merge", "--abort"]);
    install(&work);
    work.git(&["merge", "-q", "-m", "both", "other"]);
    let merged = pod("a:2", "b:1").replace("\"image\": \"a:2\"", "\"image\": \"a:2\",\n        \"tty\": true");
    assert_eq!(work.read(FILE), merged);
    assert_eq!(work.git(&["status", "--porcelain"]), "");
    let work = different();
    install(&work);
    work.git(&["merge", "-q", "-m", "both", "other"]);
    assert_eq!(work.read(FILE), pod("a:2", "b:2"));
}

#[test]
fn a_rebase_and_a_cherry_pick_keep_both_changes() {
    let work = different();
    install(&work);
    work.git(&["rebase", "-q", "other"]);
    assert_eq!(work.read(FILE), pod("a:2", "b:2"));
    assert_eq!(work.git(&["log", "--format=%s"]), "ours\ntheirs\nbase\n");
    let work = different();
    install(&work);
    work.git(&["cherry-pick", "other"]);
    assert_eq!(work.read(FILE), pod("a:2", "b:2"));
}

#[test]
fn a_conflict_is_decided_without_markers() {
    let work = diverged(&pod("a:2", "b:1"), &pod("a:3", "b:1"));
    install(&work);
    let output = work.git(&["merge", "-m", "both", "other"]);
    assert!(output.contains(&format!("{FILE}: spec.containers[name=web].image: kept")), "{output}");
    let merged = work.read(FILE);
    assert!(merged == pod("a:2", "b:1") || merged == pod("a:3", "b:1"), "{merged}");
    assert_eq!(work.git(&["status", "--porcelain"]), "");
}

#[test]
fn git_stops_at_a_broken_file_and_keeps_ours() {
    let (ours, theirs) = (pod("a:2", "b:1"), pod("a:3", "b:1"));
    let work = diverged(&ours, &theirs[..theirs.len() / 2]);
    install(&work);
    let merged = work.run(&["merge", "-m", "both", "other"], "");
    let output = text(&merged.stdout) + &text(&merged.stderr);
    assert_eq!(merged.status.code(), Some(1), "must be a conflict, not a failed merge: {output}");
    assert!(output.contains(&format!("gitcd: {FILE}: theirs (")), "{output}");
    assert_eq!((work.read(FILE), work.git(&["ls-files", "--unmerged"]).lines().count()), (ours, 3));
    work.git(&["merge", "--abort"]);
}

#[test]
fn definitions_in_the_work_tree_say_how_lists_are_merged() {
    let definition = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"teas.example.org"},
        "spec":{"group":"example.org","names":{"kind":"Tea","plural":"teas"},"scope":"Namespaced","versions":[{"name":"v1","served":true,
        "storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"cups":{
        "type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["place"],"items":{"type":"object","properties":{
        "place":{"type":"string"},"size":{"type":"integer"}}}}}}}}}}]}}"#;
    let tea = |left: u8, right: u8| {
        let cups = format!(r#"[{{"place":"left","size":{left}}},{{"place":"right","size":{right}}}]"#);
        format!(
            r#"{{"apiVersion":"example.org/v1","kind":"Tea","metadata":{{"name":"t","uid":"u"}},"spec":{{"cups":{cups}}}}}"#
        )
    };
    let merge = |with_definition: bool| {
        let work = Work::new();
        if with_definition {
            work.write("apiextensions.k8s.io/customresourcedefinitions/teas.example.org", definition);
        }
        let file = "example.org/teas/default/t";
        work.write(file, &tea(1, 1));
        work.commit("base");
        work.git(&["checkout", "-qb", "other"]);
        work.write(file, &tea(1, 2));
        work.commit("theirs");
        work.git(&["checkout", "-q", "main"]);
        work.write(file, &tea(2, 1));
        work.commit("ours");
        install(&work);
        work.git(&["merge", "-m", "both", "other"]);
        let merged: serde_json::Value = serde_json::from_str(&work.read(file)).unwrap();
        merged["spec"]["cups"].clone()
    };
    let size = |cups: &serde_json::Value| [cups[0]["size"].clone(), cups[1]["size"].clone()];
    assert_eq!(size(&merge(true)), [2, 2], "items of a map list must be merged by key");
    let without = size(&merge(false));
    assert!(without == [2, 1] || without == [1, 2], "a list without a definition is merged as one value: {without:?}");
}

/// The content of `configmaps/NAMESPACE/settings`.
fn settings(namespace: &str, level: u8) -> String {
    let data: Vec<_> = (0..8).map(|n| format!("    \"setting-{n}\": \"{n}\",\n")).collect();
    format!(
        "{{\n  \"kind\": \"ConfigMap\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {{\n    \"name\": \"settings\",\n    \
         \"namespace\": \"{namespace}\"\n  }},\n  \"data\": {{\n{}    \"level\": \"{level}\"\n  }}\n}}\n",
        data.concat()
    )
}

/// A clone where ours has deleted staging and added a similar production, and theirs has edited staging.
fn renamed() -> Work {
    let work = Work::new();
    work.write("configmaps/staging/settings", &settings("staging", 1));
    work.commit("base");
    work.git(&["checkout", "-qb", "other"]);
    work.write("configmaps/staging/settings", &settings("staging", 2));
    work.commit("theirs");
    work.git(&["checkout", "-q", "main"]);
    work.git(&["rm", "-q", "configmaps/staging/settings"]);
    work.write("configmaps/production/settings", &settings("production", 1));
    work.commit("ours");
    work
}

#[test]
fn an_edit_of_one_object_does_not_land_in_another_that_git_takes_for_the_same() {
    let production = "configmaps/production/settings";
    let work = renamed();
    install(&work);
    // Git's default, and the only behaviour of older versions.
    work.git(&["config", "merge.renames", "true"]);
    let merged = work.run(&["merge", "-m", "both", "other"], "");
    let output = text(&merged.stdout) + &text(&merged.stderr);
    assert_eq!(merged.status.code(), Some(1), "Git must stop: {output}");
    let reason = format!("{production}: metadata.namespace is \"production\" in ours and \"staging\" in the ancestor");
    assert!(output.contains(&reason), "{output}");
    assert_eq!(work.read(production), settings("production", 1));
    // Without rename detection, an operator decides about staging, and production stays unchanged.
    work.git(&["merge", "--abort"]);
    for command in ["merge", "cherry-pick"] {
        let merged = work.run(&[command, "--strategy=recursive", "-X", "no-renames", "other"], "");
        let output = text(&merged.stdout) + &text(&merged.stderr);
        assert!(!merged.status.success() && output.contains("CONFLICT (modify/delete)"), "{command}: {output}");
        assert_eq!(work.read(production), settings("production", 1), "{command}");
        work.git(&[command, "--abort"]);
    }
}

//! `gitcd graph`.

use crate::work::Work;
use crate::{gitcd, text};

/// A repository with two branches that fork at `base`, and a merge of both.
fn history() -> Work {
    let work = Work::new();
    let mut time = 1_700_000_000;
    let mut commit = |subject: &str| {
        time += 1;
        work.write(subject, subject);
        work.git(&["add", "-A"]);
        work.git_at(time, &["commit", "-qm", subject]);
    };
    commit("first");
    commit("base");
    work.git(&["checkout", "-qb", "other"]);
    for subject in ["other-1", "other-2", "other-3"] {
        commit(subject);
    }
    work.git(&["checkout", "-q", "main"]);
    commit("main-1");
    work.git_at(1_700_000_100, &["merge", "-q", "--no-ff", "-m", "both", "other~1"]);
    work
}

/// The drawing without commit IDs and ages.
fn drawing(work: &Work, arguments: &[&str]) -> String {
    let repo = format!("--repo={}", work.path("").display());
    let output = gitcd(&[&["graph", &repo], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let id = regex::Regex::new("[0-9a-f]{10}").expect("the expression is valid");
    let age = regex::Regex::new(r" \(\d+\w ago\)|, \d+\w ago").expect("the expression is valid");
    age.replace_all(&id.replace_all(&text(&output.stdout), "ID"), "").into_owned()
}

#[test]
fn branches_and_merges_are_drawn_and_runs_are_one_line() {
    let work = history();
    let all = "\
● ID (main) both
├─╮
● │ ID main-1
│ │ ● ID (other) other-3
│ ├─╯
│ ● ID other-2
│ ● ID other-1
├─╯
● ID base
● ID first
";
    assert_eq!(drawing(&work, &["--all"]), all);
    assert_eq!(drawing(&work, &[]), all, "a single commit must not be folded");
    let of_other = "\
● ID (other) other-3
┊ … 3 commits
● ID first
";
    assert_eq!(drawing(&work, &["other"]), of_other);
    let limited = drawing(&work, &["--limit=1", "main"]);
    assert_eq!(limited, "● ID (main) both\n├─╮\n… there is more: --limit=N\n");
}

#[test]
fn json_has_what_is_drawn() {
    let work = history();
    let repo = format!("--repo={}", work.path("").display());
    let output = gitcd(&["graph", &repo, "--json", "other"]);
    let graph: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(graph["more"], false);
    let lines = graph["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 3, "{graph}");
    let id = |name: &str| work.git(&["rev-parse", name]).trim().to_owned();
    assert_eq!(lines[0]["commit"], id("other"));
    assert_eq!((&lines[0]["references"][0], &lines[0]["subject"]), (&"other".into(), &"other-3".into()));
    assert_eq!((&lines[1]["folded"], &lines[1]["newest"]), (&3.into(), &id("other~1").into()));
    assert_eq!(lines[2]["parents"], serde_json::json!([]));
}

#[test]
fn an_unknown_reference_is_named() {
    let work = history();
    let repo = format!("--repo={}", work.path("").display());
    let output = gitcd(&["graph", &repo, "missing"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("no branch, tag or commit \"missing\""), "{output:?}");
}

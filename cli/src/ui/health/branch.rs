//! The health of a branch, from the status of its gitcd.

use gitcd::status::{Branch, Status};
use trishanku::status::HeavenReport;
use trishanku_page::health::{BranchHealth, Finding, HealthState, RemoteHealth, StoreSize};

/// Returns the health of a branch. `process` is the state of its gitcd's process; `None` if it has none.
pub(super) fn of(report: &HeavenReport, process: Option<HealthState>) -> BranchHealth {
    let status = report.status.as_ref();
    // Without a request to gitcd, Git was read.
    let is_read = report.error.is_none() && report.head.is_some();
    let signed = |number: Option<u64>| number.and_then(|number| i64::try_from(number).ok());
    let figures = report.figures.unwrap_or_default();
    let size =
        figures.size_bytes.map(|bytes| StoreSize { bytes, quota: figures.quota_bytes.filter(|quota| *quota > 0) });
    let mut health = BranchHealth {
        name: report.name.clone(),
        reference: report.branch.clone(),
        role: status.map(|status| status.role.clone()),
        head: report.head.clone(),
        revision: signed(report.revision),
        committed_revision: status.map(|status| status.committed_revision),
        lag_revisions: status.map(|status| status.commit_lag_revisions),
        lag_seconds: report.commit_lag_seconds,
        conflicts: (status.is_some() || is_read).then_some(report.conflicts),
        rejected: status.map(rejected),
        size,
        restarts: Some(report.restarts),
        remotes: report.remotes.iter().map(|remote| remote_health(remote, status)).collect(),
        ..BranchHealth::default()
    };
    health.problems = status.map(problems).unwrap_or_default();
    health.state = match (status, process) {
        (Some(status), _) => HealthState { word: "running".to_owned(), is_good: is_good(status) },
        (None, Some(process)) if report.error.is_some() => {
            let word = if process.word == "ready" { "not reachable".to_owned() } else { process.word };
            HealthState { word, is_good: false }
        }
        (None, Some(process)) => process,
        (None, None) => HealthState { word: "unknown".to_owned(), is_good: false },
    };
    if let (None, Some(error)) = (status, &report.error) {
        health.problems.push(finding("its gitcd does not report its status", [error.clone()]));
    }
    health
}

fn is_good(branch: &Branch) -> bool {
    Status { gitcd: String::new(), time: 0, branches: vec![branch.clone()] }.is_good()
}

fn rejected(branch: &Branch) -> u64 {
    let of_remotes = branch.remotes.iter().map(|remote| remote.known.rejected.len());
    of_remotes.chain([branch.rejected.len()]).sum::<usize>() as u64
}

fn remote_health(remote: &trishanku::status::RemoteReport, status: Option<&Branch>) -> RemoteHealth {
    let is_synced = |word: &String| HealthState { word: word.clone(), is_good: word == "Synced" };
    let known = status.and_then(|status| status.remotes.iter().find(|known| known.name == remote.name));
    RemoteHealth {
        name: remote.name.clone(),
        reference: remote.branch.clone(),
        condition: remote.condition.as_ref().map(is_synced),
        lag_commits: remote.lag_commits,
        has_more: known.is_some_and(|known| known.lag_more),
        lag_seconds: remote.lag_seconds,
    }
}

fn finding(what: impl Into<String>, details: impl IntoIterator<Item = String>) -> Finding {
    Finding { what: what.into(), details: details.into_iter().collect() }
}

/// Returns what is wrong with a branch. Values are left out: reasons of rejected files may quote them.
fn problems(branch: &Branch) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &branch.writes_refused {
        let what = if branch.role == "standby" { "standing by: another server writes" } else { "writes refused" };
        found.push(finding(what, [why.clone()]));
    }
    found.extend(branch.error.iter().map(|error| finding("an external commit cannot be merged", [error.clone()])));
    let lease = branch.lease.as_ref().and_then(|lease| lease.error.clone());
    found.extend(lease.map(|error| finding("the writer lease cannot be renewed", [error])));
    found.extend(files("rejected", branch.rejected.keys()));
    found
        .extend(latest("conflicts", branch.latest_conflicts.iter().map(|conflict| (&conflict.path, &conflict.commit))));
    for remote in &branch.remotes {
        let (name, known) = (&remote.name, &remote.known);
        let condition = format!("{:?}", known.condition);
        if condition != "Synced" {
            found.push(finding(format!("{name}: {condition}"), known.error.clone()));
        }
        found.extend(files(&format!("rejected from {name}"), known.rejected.keys()));
        let conflicts = known.latest_conflicts.iter().map(|conflict| (&conflict.path, &conflict.commit));
        found.extend(latest(&format!("conflicts with {name}"), conflicts));
    }
    for (name, task) in &branch.tasks {
        let state = if task.down { "is down" } else { "was restarted" };
        found.push(finding(format!("task {name} {state} after a panic"), [task.error.clone()]));
    }
    found
}

fn files<'p>(what: &str, paths: impl ExactSizeIterator<Item = &'p String>) -> Option<Finding> {
    let count = paths.len();
    let noun = if count == 1 { "file" } else { "files" };
    let details = paths.cloned().chain(["gitcd status prints the reasons".to_owned()]);
    (count > 0).then(|| finding(format!("{count} {noun} {what}"), details))
}

fn latest<'c>(what: &str, conflicts: impl ExactSizeIterator<Item = (&'c String, &'c String)>) -> Option<Finding> {
    let is_any = conflicts.len() > 0;
    let details = conflicts.map(|(path, commit)| format!("{path}, commit {}", commit.get(..10).unwrap_or(commit)));
    is_any.then(|| finding(format!("latest {what}"), details))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn branch() -> Branch {
        let conflict = |path: &str| json!({"path": path, "field": "data.x", "kept": "\"HUSH\"", "lost": "\"HUSH\"", "commit": "0123456789abcdef", "time": 5});
        let remote = json!({
            "name": "origin", "reference": "refs/heads/main", "condition": "Denied", "error": "no password", "lag_commits": 3,
            "lag_more": false, "lag_seconds": 7, "merges": 0, "conflicts": 1, "latest_conflicts": [conflict("configmaps/n/a")],
            "fetched_bytes": 0, "pushed_bytes": 0, "failures": 1, "rejected": {"pods/n/b": "HUSH is no number"},
        });
        let said = json!({
            "name": "default", "reference": "refs/heads/main", "role": "writer", "revision": 42, "committed_revision": 40,
            "compact_revision": 1, "head": "0123456789abcdef", "commit_lag_revisions": 2, "commit_lag_seconds": 0.25, "keys": 7,
            "merges": 1, "conflicts": 1, "latest_conflicts": [], "rejected": {"x/y": "HUSH"}, "rejected_from": {},
            "writes_refused": "the disk is full", "remotes": [remote],
            "tasks": {"committer": {"restarts": 1, "error": "at line 5", "down": true}},
        });
        serde_json::from_value(said).expect("it is a status")
    }

    fn report(status: Option<Branch>) -> HeavenReport {
        let mut report = HeavenReport::of_repository("desk", "/nowhere".into(), "refs/heads/main");
        match status {
            Some(branch) => report.add(trishanku::status::StoreStatus { branch: Ok(branch), figures: None }),
            None => report.error = Some("no answer on port 5".into()),
        }
        report
    }

    #[test]
    fn every_problem_is_named_and_values_are_not() {
        let health = of(&report(Some(branch())), None);
        assert_eq!((health.revision, health.committed_revision, health.lag_revisions), (Some(42), Some(40), Some(2)));
        assert_eq!((health.rejected, health.conflicts, health.state.is_good), (Some(2), Some(2), false));
        let what: Vec<&str> = health.problems.iter().map(|problem| problem.what.as_str()).collect();
        let expected = [
            "writes refused",
            "1 file rejected",
            "origin: Denied",
            "1 file rejected from origin",
            "latest conflicts with origin",
            "task committer is down after a panic",
        ];
        assert_eq!(what, expected);
        let text = format!("{health:?}");
        assert!(!text.contains("HUSH"), "{text}");
        for detail in
            ["the disk is full", "x/y", "no password", "pods/n/b", "configmaps/n/a, commit 0123456789", "at line 5"]
        {
            assert!(text.contains(detail) && what.iter().all(|what| !what.contains(detail)), "{detail}: {text}");
        }
    }

    #[test]
    fn a_branch_is_healthy_only_if_its_gitcd_says_so() {
        let state = |word: &str, is_good| Some(HealthState { word: word.to_owned(), is_good });
        let unreachable = of(&report(None), state("ready", true));
        assert_eq!(unreachable.state, state("not reachable", false).unwrap());
        assert_eq!(unreachable.problems[0].what, "its gitcd does not report its status");
        assert_eq!((unreachable.conflicts, unreachable.rejected, unreachable.lag_revisions), (None, None, None));
        assert_eq!(of(&report(None), state("restarting", false)).state, state("restarting", false).unwrap());
        let mut unknown = report(None);
        unknown.error = None;
        assert_eq!(of(&unknown, None).state, state("unknown", false).unwrap());
        let mut good = branch();
        good.writes_refused = None;
        (good.rejected, good.remotes, good.tasks) = Default::default();
        assert_eq!(of(&report(Some(good)), None).state, state("running", true).unwrap());
    }
}

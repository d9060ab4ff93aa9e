//! The branches and their remotes, as their gitcds report them.
//!
//! Reasons of rejected files are left out: they may quote values of keys.

use gitcd::pull::status::Condition;
use gitcd::status::{Branch, Remote};
use trishanku::status::{Health, HeavenReport, Report, StoreFigures};

use super::check::{Area, Check, bytes};

/// Commits usually follow within a second.
const LAG_SECONDS: f64 = 60.0;
/// The part of the quota above which it is a problem soon, in percent.
const QUOTA_PERCENT: u64 = 80;
const RESTARTED: &str = "an internal task has panicked, which is a bug: please report it with the log of gitcd";

/// Checks the branch of each heaven and merge, or that of a control plane without heavens.
pub(super) fn check(report: &Report) -> Vec<Check> {
    let mut heavens = report.heavens.clone();
    if let (true, Some(status), Some(repository)) =
        (heavens.is_empty(), &report.store_status, report.repository.clone())
    {
        let mut store = HeavenReport::of_repository("gitcd", repository, "refs/heads/main");
        store.add(status.clone());
        heavens.push(store);
    }
    let is_starting = report.health == Health::Starting;
    heavens.iter().flat_map(|heaven| of_heaven(heaven, is_starting)).collect()
}

fn of_heaven(heaven: &HeavenReport, is_starting: bool) -> Vec<Check> {
    const NAME: &str = "store";
    let mut checks = match (&heaven.status, &heaven.error) {
        (Some(status), _) => of_branch(status, heaven.figures.as_ref()),
        (None, Some(_)) if is_starting => vec![Check::skipped(Area::Cluster, NAME, "it is starting")],
        (None, Some(error)) => {
            let remedy = "see the log of its gitcd; it is restarted if it exits";
            vec![Check::failure(Area::Cluster, NAME, format!("it does not report its status: {error}"), remedy)]
        }
        // A merge has no port, and what is stopped is not asked.
        (None, None) => return Vec::new(),
    };
    if checks.is_empty() {
        let lag = heaven.commit_lag_seconds.unwrap_or_default();
        let remotes = match heaven.remotes.len() {
            0 => String::new(),
            1 => ", 1 remote is synced".to_owned(),
            count => format!(", {count} remotes are synced"),
        };
        checks.push(Check::ok(Area::Cluster, NAME, format!("commit lag {lag:.1} s{remotes}")));
    }
    checks.into_iter().map(|check| check.about(&heaven.name)).collect()
}

/// Returns what is wrong with a branch.
fn of_branch(branch: &Branch, figures: Option<&StoreFigures>) -> Vec<Check> {
    const NAME: &str = "store";
    let mut checks = Vec::new();
    let fails = |detail: String, remedy: &str| Check::failure(Area::Cluster, NAME, detail, remedy);
    let warns = |detail: String, remedy: &str| Check::warning(Area::Cluster, NAME, detail, remedy);
    if let Some(why) = branch.writes_refused.as_ref().filter(|_| branch.role != "standby") {
        checks.push(fails(format!("writes are refused: {why}"), "follow the message; reads are answered meanwhile"));
    }
    if let Some(error) = &branch.error {
        checks.push(fails(
            format!("an external commit cannot be merged: {error}"),
            "correct it with another commit on the branch; `gitcd status` shows details",
        ));
    }
    if let Some(error) = branch.lease.as_ref().and_then(|lease| lease.error.as_ref()) {
        checks.push(fails(
            format!("the writer lease cannot be renewed: {error}"),
            "make the shared repository reachable",
        ));
    }
    for (name, task) in &branch.tasks {
        if task.down {
            checks.push(fails(format!("the task {name} is down"), RESTARTED));
        } else {
            checks.push(warns(format!("the task {name} was restarted"), RESTARTED));
        }
    }
    if branch.commit_lag_seconds > LAG_SECONDS {
        let detail = format!(
            "commit lag {:.0} s, {} revisions: the writes are durable in the journal, and not in Git",
            branch.commit_lag_seconds, branch.commit_lag_revisions
        );
        checks.push(warns(detail, "see the log of its gitcd; a slow or full disk is the usual cause"));
    }
    let rejected =
        branch.rejected.len() + branch.remotes.iter().map(|remote| remote.known.rejected.len()).sum::<usize>();
    if rejected > 0 {
        let files = if rejected == 1 {
            "1 file of an external commit is"
        } else {
            &format!("{rejected} files of external commits are")
        };
        let detail = format!("{files} rejected");
        checks.push(warns(detail, "push a correction, or delete the files; `gitcd status` prints the reasons"));
    }
    if let Some((used, quota)) = figures.and_then(|figures| Some((figures.size_bytes?, figures.quota_bytes?)))
        && quota > 0
        && used >= quota / 100 * QUOTA_PERCENT
    {
        let detail = format!("{} of the quota of {} are used", bytes(used), bytes(quota));
        checks.push(warns(
            detail,
            "compact or delete keys, or raise --quota-backend-bytes; gitcd refuses writes at the quota",
        ));
    }
    checks.extend(branch.remotes.iter().filter_map(of_remote));
    checks
}

fn of_remote(remote: &Remote) -> Option<Check> {
    let remedy = match remote.known.condition {
        // At the start, it is pulled soon.
        Condition::Unknown | Condition::Synced => return None,
        Condition::Unreachable => "make the remote reachable; gitcd repeats the pull until it succeeds",
        Condition::Denied => "correct the credentials of the remote",
        Condition::NoBranch => "push the branch to the remote, or correct its name in the manifest",
        Condition::Damaged => "restore the remote from a clone",
        Condition::NoSpace => "free space on the file system of the state folder",
        Condition::Raced => "reduce the number of servers that push to the branch",
        Condition::Failed => "follow the message; gitcd repeats the pull until it succeeds",
    };
    let error = remote.known.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let detail = format!("the last pull or push of {} failed, {:?}{error}", remote.name, remote.known.condition);
    Some(Check::failure(Area::Cluster, "remotes", detail, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use trishanku::status::StoreStatus;

    use super::super::check::Status;
    use super::*;

    fn heaven(change: impl FnOnce(&mut Value)) -> HeavenReport {
        let remote = json!({
            "name": "origin", "reference": "refs/heads/main", "condition": "Synced", "lag_commits": 0, "lag_more": false,
            "merges": 0, "conflicts": 0, "latest_conflicts": [], "fetched_bytes": 0, "pushed_bytes": 0, "failures": 0, "rejected": {},
        });
        let mut said = json!({
            "name": "default", "reference": "refs/heads/main", "role": "writer", "revision": 42, "committed_revision": 40,
            "compact_revision": 1, "head": "0123456789abcdef", "commit_lag_revisions": 2, "commit_lag_seconds": 0.25, "keys": 7,
            "merges": 1, "conflicts": 1, "latest_conflicts": [], "rejected": {}, "rejected_from": {}, "remotes": [remote],
        });
        change(&mut said);
        let mut heaven = HeavenReport::of_repository("desk", "/nowhere".into(), "refs/heads/main");
        let figures =
            StoreFigures { size_bytes: Some(10 << 20), quota_bytes: Some(100 << 20), ..StoreFigures::default() };
        heaven.add(StoreStatus {
            branch: serde_json::from_value(said).map_err(|error| error.to_string()),
            figures: Some(figures),
        });
        heaven
    }

    fn only(heaven: &HeavenReport) -> Check {
        let mut checks = of_heaven(heaven, false);
        assert_eq!(checks.len(), 1, "{checks:?}");
        checks.remove(0)
    }

    #[test]
    fn a_branch_that_is_committed_and_synced_is_good() {
        let check = only(&heaven(|_| {}));
        assert_eq!((check.status, check.object.as_deref()), (Status::Ok, Some("desk")));
        assert_eq!(check.detail, "commit lag 0.2 s, 1 remote is synced");
    }

    #[test]
    fn each_problem_of_a_branch_has_a_status_and_a_remedy() {
        for (field, value, status, part) in [
            ("writes_refused", json!("the disk is full"), Status::Failure, "writes are refused: the disk is full"),
            ("error", json!("no ancestor"), Status::Failure, "cannot be merged: no ancestor"),
            ("commit_lag_seconds", json!(90.0), Status::Warning, "commit lag 90 s, 2 revisions"),
            ("rejected", json!({"a/b": "HUSH"}), Status::Warning, "1 file of an external commit is rejected"),
            (
                "tasks",
                json!({"committer": {"restarts": 1, "error": "x", "down": true}}),
                Status::Failure,
                "committer is down",
            ),
            ("tasks", json!({"gc": {"restarts": 1, "error": "x", "down": false}}), Status::Warning, "gc was restarted"),
        ] {
            let check = only(&heaven(|said| said[field] = value));
            assert!(check.status == status && check.detail.contains(part) && check.remedy.is_some(), "{check:?}");
            assert!(!format!("{check:?}").contains("HUSH"), "{check:?}");
        }
        let standby = heaven(|said| {
            said["role"] = json!("standby");
            said["writes_refused"] = json!("another server writes");
        });
        assert_eq!(only(&standby).status, Status::Ok);
        let mut full = heaven(|_| {});
        full.figures.as_mut().unwrap().size_bytes = Some(80 << 20);
        let check = only(&full);
        assert!(
            check.status == Status::Warning && check.detail.contains("80 MiB of the quota of 100 MiB"),
            "{check:?}"
        );
    }

    #[test]
    fn a_remote_whose_pull_failed_is_named_with_its_error() {
        let check = only(&heaven(|said| {
            said["remotes"][0]["condition"] = json!("Denied");
            said["remotes"][0]["error"] = json!("no password");
        }));
        assert_eq!((check.status, check.name, check.object.as_deref()), (Status::Failure, "remotes", Some("desk")));
        assert_eq!(check.detail, "the last pull or push of origin failed, Denied: no password");
        assert!(check.remedy.unwrap().contains("credentials"));
    }

    #[test]
    fn a_gitcd_that_does_not_answer_fails_and_one_that_is_not_asked_is_left_out() {
        let mut silent = HeavenReport::of_repository("desk", "/nowhere".into(), "refs/heads/main");
        assert!(of_heaven(&silent, false).is_empty());
        silent.error = Some("no answer on port 5".into());
        assert_eq!(only(&silent).status, Status::Failure);
        assert_eq!(of_heaven(&silent, true)[0].status, Status::Skipped);
    }
}

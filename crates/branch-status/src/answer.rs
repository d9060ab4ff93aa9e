//! gitcd's response at `/status`, and the conditions derived from it. See `docs/design/status.md` for all fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use trishanku_api::{BranchStatus, RemoteStatus};
use trishanku_heaven_plan::workload::State;

/// The response.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct Answer {
    /// The branches of the server; always one.
    pub branches: Vec<Branch>,
}

/// The status of a branch.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Branch {
    /// `writer`, or the reason why it accepts no writes.
    pub role: String,
    /// The newest revision in Git.
    pub committed_revision: i64,
    /// The commit of that revision.
    pub head: String,
    /// The number of revisions that are not in Git yet.
    pub commit_lag_revisions: u64,
    /// Why writes are refused.
    pub writes_refused: Option<String>,
    /// Resolved conflicts with external commits.
    pub conflicts: i64,
    /// Why an external commit cannot be merged.
    pub error: Option<String>,
    /// The status of the remotes.
    pub remotes: Vec<Remote>,
}

/// The status of a remote.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
pub struct Remote {
    /// Its name.
    pub name: String,
    /// Its condition.
    pub condition: String,
    /// Why its condition is not `Synced`.
    pub error: Option<String>,
    /// The number of its commits that are not merged.
    pub lag_commits: Option<i64>,
    /// The commit that was merged last.
    pub merged: Option<String>,
    /// When that was merged, in seconds since 1970.
    pub merged_at: Option<i64>,
    /// Our newest commit that it has.
    pub pushed: Option<String>,
    /// Resolved conflicts.
    pub conflicts: i64,
}

fn time(seconds: Option<i64>) -> Option<Time> {
    Timestamp::from_second(seconds?).ok().map(Time)
}

impl Branch {
    /// The status of the branch of a heaven.
    pub fn status(&self, name: &str) -> BranchStatus {
        let newest = self.remotes.iter().filter(|remote| remote.merged.is_some()).max_by_key(|remote| remote.merged_at);
        let lags: Vec<i64> = self.remotes.iter().filter_map(|remote| remote.lag_commits).collect();
        BranchStatus {
            name: name.to_owned(),
            commit: Some(self.head.clone()).filter(|head| !head.is_empty()),
            revision: Some(self.committed_revision),
            commits_behind: (!lags.is_empty()).then(|| lags.iter().sum()),
            last_merge: newest.and_then(|remote| remote.merged.clone()),
            last_merge_time: newest.and_then(|remote| time(remote.merged_at)),
            conflicts: Some(self.conflicts + self.remotes.iter().map(|remote| remote.conflicts).sum::<i64>()),
        }
    }

    /// The status of the remotes of a merge.
    pub fn remotes(&self) -> Vec<RemoteStatus> {
        let statuses = self.remotes.iter().map(|remote| RemoteStatus {
            name: remote.name.clone(),
            last_merge: remote.merged.clone(),
            last_merge_time: time(remote.merged_at),
            commits_behind: remote.lag_commits,
            conflicts: Some(remote.conflicts),
            error: remote.error.clone(),
        });
        statuses.collect()
    }

    /// Whether the last exchange with each remote succeeded; `None` without remotes.
    pub fn synced(&self) -> Option<State> {
        if self.remotes.is_empty() {
            return None;
        }
        let failed: Vec<_> = self.remotes.iter().filter(|remote| remote.condition != "Synced").collect();
        let Some(first) = failed.first() else { return Some(State::new(true, "Synced", "")) };
        let said = failed
            .iter()
            .map(|remote| format!("{}: {}", remote.name, remote.error.as_deref().unwrap_or("no exchange yet")));
        let reason = if first.condition.is_empty() { "Unknown" } else { &first.condition };
        Some(State::new(false, reason, said.collect::<Vec<_>>().join("; ")))
    }

    /// Whether the branch exists and can be written.
    pub fn ready(&self) -> State {
        match (&self.writes_refused, &self.error, self.role.as_str()) {
            (Some(why), ..) => State::new(false, "WritesRefused", why.clone()),
            (None, Some(why), _) => State::new(false, "CommitRefused", why.clone()),
            (None, None, "suspended") => State::new(false, "LeaseNotRenewed", "the writer's lease cannot be renewed"),
            (None, None, "deposed") => State::new(false, "Deposed", "another server writes the branch"),
            (None, None, _) => State::new(true, "Serving", ""),
        }
    }

    /// Whether this server is the writer, including one that currently cannot renew its lease.
    pub(crate) fn is_writer(&self) -> bool {
        self.role == "writer" || self.role == "suspended"
    }

    /// What is not pushed yet, as far as is known; `None` if all remotes have everything.
    pub fn unpushed(&self) -> Option<String> {
        if self.commit_lag_revisions > 0 {
            return Some(format!("{} revisions are not committed yet", self.commit_lag_revisions));
        }
        let behind: Vec<_> = self.remotes.iter().filter(|remote| remote.pushed.as_ref() != Some(&self.head)).collect();
        let said = behind.iter().map(|remote| {
            let why = remote.error.as_ref().map_or_else(String::new, |error| format!(" ({error})"));
            format!("{} does not have commit {}{why}", remote.name, self.head)
        });
        (!behind.is_empty()).then(|| said.collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn branch(change: impl FnOnce(&mut Value)) -> Branch {
        let mut said = json!({
            "name": "default", "reference": "refs/heads/main", "role": "writer", "revision": 9, "committed_revision": 8, "head": "abc",
            "commit_lag_revisions": 0, "conflicts": 1, "new_field": 3,
            "remotes": [
                {"name": "origin", "condition": "Synced", "lag_commits": 2, "merged": "m1", "merged_at": 100, "conflicts": 4, "pushed": "abc"},
                {"name": "desk", "condition": "Synced", "lag_commits": 0, "merged": "m2", "merged_at": 200, "conflicts": 0, "pushed": "abc"},
            ],
        });
        change(&mut said);
        serde_json::from_value(said).unwrap()
    }

    #[test]
    fn a_healthy_branch_is_reported_with_the_newest_merge_and_all_lag() {
        let branch = branch(|_| {});
        let status = branch.status("kcm/data");
        assert_eq!(
            (status.commits_behind, status.conflicts, status.last_merge.as_deref()),
            (Some(2), Some(5), Some("m2"))
        );
        assert_eq!(
            (status.revision, status.commit.as_deref(), status.name.as_str()),
            (Some(8), Some("abc"), "kcm/data")
        );
        assert!(branch.synced().unwrap().is && branch.ready().is);
        assert_eq!(branch.unpushed(), None);
        assert_eq!(branch.remotes()[0].commits_behind, Some(2));
    }

    #[test]
    fn problems_are_reported_by_name() {
        let away = branch(|said| {
            said["remotes"][1]["condition"] = "Denied".into();
            said["remotes"][1]["error"] = "no password".into();
            said["remotes"][1]["pushed"] = "old".into();
        });
        let synced = away.synced().unwrap();
        assert_eq!(
            (synced.is, synced.reason.as_str(), synced.message.as_str()),
            (false, "Denied", "desk: no password")
        );
        assert_eq!(away.unpushed().unwrap(), "desk does not have commit abc (no password)");
        let full = branch(|said| said["writes_refused"] = "the disk is full".into());
        assert_eq!((full.ready().is, full.ready().message.as_str()), (false, "the disk is full"));
        assert_eq!(branch(|said| said["role"] = "suspended".into()).ready().reason, "LeaseNotRenewed");
        assert!(branch(|said| said["commit_lag_revisions"] = 3.into()).unpushed().unwrap().contains("3 revisions"));
        assert_eq!(branch(|said| said["remotes"] = json!([])).synced(), None);
    }
}

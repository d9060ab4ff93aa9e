//! The status of heavens and merges: branches, lag, last merges and conflicts.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::ComponentReport;
use crate::heavens::{HeavenRecord, Kind};
use crate::plane::http::Endpoint;

/// The status of one heaven or merge.
#[derive(Clone, Debug, Serialize)]
pub struct HeavenReport {
    /// Its name, which is the prefix of its components' names.
    pub name: String,
    /// Whether it is a heaven or a merge.
    pub kind: Kind,
    /// Its branch.
    pub branch: String,
    /// The repository with the branch.
    pub repository: std::path::PathBuf,
    /// The administrator's kubeconfig.
    pub kubeconfig: Option<std::path::PathBuf>,
    /// The commit at the head of the branch.
    pub head: Option<String>,
    /// The current revision; a merge has none.
    pub revision: Option<u64>,
    /// The age of the oldest write that is not yet committed to Git.
    pub commit_lag_seconds: Option<f64>,
    /// The branches from which it pulls.
    pub remotes: Vec<RemoteReport>,
    /// Keys and fields that several branches changed: of a heaven, since its start; of a merge, in its last 1,000 merge
    /// commits.
    pub conflicts: u64,
    /// How often its components were restarted.
    pub restarts: u32,
    /// Why the status of its branch is unknown, although it runs.
    pub error: Option<String>,
}

/// The status of a branch from which it pulls.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RemoteReport {
    /// The remote's name.
    pub name: String,
    /// The reference in the remote.
    pub branch: String,
    /// `Synced`, or the condition that prevents that; `None` for a merge.
    pub condition: Option<String>,
    /// The number of its commits that are not merged yet.
    pub lag_commits: Option<u64>,
    /// The age of the oldest of them.
    pub lag_seconds: Option<f64>,
    /// When one of its commits was merged last, in seconds since 1970.
    pub merged_at: Option<u64>,
    /// Why it is not `Synced`.
    pub error: Option<String>,
}

/// The part of gitcd's response at `/status` (docs/design/status.md) that is shown.
#[derive(Deserialize)]
struct Said {
    branches: Vec<SaidOfBranch>,
}

#[derive(Deserialize)]
struct SaidOfBranch {
    revision: u64,
    head: String,
    commit_lag_seconds: f64,
    #[serde(default)]
    conflicts: u64,
    error: Option<String>,
    remotes: Vec<SaidOfRemote>,
}

#[derive(Deserialize)]
struct SaidOfRemote {
    name: String,
    reference: String,
    condition: String,
    error: Option<String>,
    lag_commits: Option<u64>,
    lag_seconds: Option<f64>,
    merged_at: Option<u64>,
    #[serde(default)]
    conflicts: u64,
}

impl HeavenReport {
    /// The status without requests to gitcd.
    pub(super) fn of(record: &HeavenRecord, components: &[ComponentReport]) -> Self {
        let own = components.iter().filter(|component| component.heaven() == Some(&record.name));
        Self {
            name: record.name.clone(),
            kind: record.kind,
            branch: record.branch.clone(),
            repository: record.repository.clone(),
            kubeconfig: record.kubeconfig.clone(),
            head: git(&record.repository, &["rev-parse", "--quiet", "--verify", &record.branch]),
            revision: None,
            commit_lag_seconds: None,
            remotes: Vec::new(),
            conflicts: 0,
            restarts: own.map(|component| component.restarts).sum(),
            error: None,
        }
    }

    /// Adds the status from gitcd, or from Git if no gitcd port is known or it does not run.
    pub(super) async fn ask(&mut self, record: &HeavenRecord, keys: &Path, is_running: bool) {
        match record.gitcd_port.filter(|_| is_running) {
            Some(port) => match said(port, keys).await {
                Ok(said) => self.take(said),
                Err(error) => self.error = Some(error),
            },
            None => self.read(record),
        }
    }

    fn take(&mut self, said: SaidOfBranch) {
        self.revision = Some(said.revision);
        self.head = Some(said.head);
        self.commit_lag_seconds = Some(said.commit_lag_seconds);
        self.conflicts = said.conflicts + said.remotes.iter().map(|remote| remote.conflicts).sum::<u64>();
        self.error = said.error;
        self.remotes = said
            .remotes
            .into_iter()
            .map(|remote| RemoteReport {
                name: remote.name,
                branch: remote.reference,
                condition: Some(remote.condition),
                lag_commits: remote.lag_commits,
                lag_seconds: remote.lag_seconds,
                merged_at: remote.merged_at,
                error: remote.error,
            })
            .collect();
    }

    /// Reads from Git: commit lags are only known of remotes on this machine.
    fn read(&mut self, record: &HeavenRecord) {
        let Some(head) = self.head.clone() else { return };
        let merges = ["log", "--merges", "--max-count=1000", "--grep=^Conflict:", "--format=%b", &head];
        let conflicts = git(&record.repository, &merges).unwrap_or_default();
        self.conflicts = conflicts.lines().filter(|line| line.starts_with("Conflict:")).count() as u64;
        let last = git(&record.repository, &["log", "--max-count=1", "--format=%ct", &head]);
        let last = last.and_then(|time| time.parse().ok());
        for remote in &record.remotes {
            // Commits that are not merged yet may only exist there.
            let lag = remote.folder.as_deref().and_then(|folder| {
                git(folder, &["rev-list", "--count", &remote.branch, &format!("^{head}")])?.parse().ok()
            });
            self.remotes.push(RemoteReport {
                name: remote.name.clone(),
                branch: remote.branch.clone(),
                lag_commits: lag,
                merged_at: last,
                ..RemoteReport::default()
            });
        }
    }

    /// Returns the number of unmerged commits, and the time of the last merge.
    #[must_use]
    pub fn behind(&self) -> (Option<u64>, Option<u64>) {
        let lag = self.remotes.iter().map(|remote| remote.lag_commits).reduce(|one, other| Some(one? + other?));
        (lag.flatten(), self.remotes.iter().filter_map(|remote| remote.merged_at).max())
    }
}

async fn said(port: u16, keys: &Path) -> Result<SaidOfBranch, String> {
    let endpoint = Endpoint::store(port, keys).map_err(|error| error.to_string())?;
    let text = endpoint.ask("/status").await.map_err(|error| error.to_string())?;
    let said: Said = serde_json::from_slice(&text).map_err(|error| format!("cannot parse gitcd's status: {error}"))?;
    said.branches.into_iter().next().ok_or_else(|| "gitcd serves no branch".to_owned())
}

/// The output of Git; `None` if it fails or is empty.
fn git(repository: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(repository).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_behind_is_unknown_if_it_is_of_one() {
        let remote = |lag_commits| RemoteReport { lag_commits, merged_at: lag_commits, ..RemoteReport::default() };
        let mut report = HeavenReport {
            name: "a".into(),
            kind: Kind::Heaven,
            branch: "refs/heads/a".into(),
            repository: "/a".into(),
            kubeconfig: None,
            head: None,
            revision: None,
            commit_lag_seconds: None,
            remotes: vec![remote(Some(2)), remote(Some(3))],
            conflicts: 0,
            restarts: 0,
            error: None,
        };
        assert_eq!(report.behind(), (Some(5), Some(3)));
        report.remotes.push(remote(None));
        assert_eq!(report.behind(), (None, Some(3)));
        report.remotes.clear();
        assert_eq!(report.behind(), (None, None));
    }
}

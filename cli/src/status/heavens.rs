//! The status of heavens and merges: branches, lag, last merges and conflicts.

use std::path::{Path, PathBuf};
use std::process::Command;

use gitcd::status::Branch;
use serde::Serialize;

use super::ComponentReport;
use super::store::{StoreFigures, StoreStatus};
use crate::heavens::{HeavenRecord, Kind};

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
    /// The whole status of its branch, if its gitcd responds.
    #[serde(skip)]
    pub status: Option<Branch>,
    /// The metrics of its store, if its gitcd responds.
    #[serde(skip)]
    pub figures: Option<StoreFigures>,
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
            status: None,
            figures: None,
        }
    }

    /// The status of a branch that no heaven has, as far as its repository shows it. Runs Git.
    #[must_use]
    pub fn of_repository(name: &str, repository: PathBuf, branch: &str) -> Self {
        let mut report = Self {
            name: name.to_owned(),
            kind: Kind::Heaven,
            branch: branch.to_owned(),
            head: git(&repository, &["rev-parse", "--quiet", "--verify", branch]),
            repository,
            kubeconfig: None,
            revision: None,
            commit_lag_seconds: None,
            remotes: Vec::new(),
            conflicts: 0,
            restarts: 0,
            error: None,
            status: None,
            figures: None,
        };
        report.conflicts = report.conflicts_in_git();
        report
    }

    /// Adds the status from gitcd, or from Git if no gitcd port is known or it does not run.
    pub(super) async fn ask(&mut self, record: &HeavenRecord, keys: &Path, is_running: bool) {
        let Some(port) = record.gitcd_port.filter(|_| is_running) else { return self.read(record) };
        self.add(StoreStatus::ask(port, keys).await);
    }

    /// Adds what its gitcd responds.
    pub fn add(&mut self, StoreStatus { branch, figures }: StoreStatus) {
        self.figures = figures;
        match branch {
            Ok(branch) => self.take(branch),
            Err(error) => self.error = Some(error),
        }
    }

    fn take(&mut self, branch: Branch) {
        self.revision = u64::try_from(branch.revision).ok();
        self.head = Some(branch.head.clone());
        self.commit_lag_seconds = Some(branch.commit_lag_seconds);
        self.conflicts = branch.conflicts + branch.remotes.iter().map(|remote| remote.known.conflicts).sum::<u64>();
        self.error.clone_from(&branch.error);
        let remotes = branch.remotes.iter().map(|remote| RemoteReport {
            name: remote.name.clone(),
            branch: remote.reference.clone(),
            condition: Some(format!("{:?}", remote.known.condition)),
            lag_commits: remote.lag_commits,
            lag_seconds: remote.lag_seconds.map(|seconds| seconds as f64),
            merged_at: remote.known.merged_at,
            error: remote.known.error.clone(),
        });
        self.remotes = remotes.collect();
        self.status = Some(branch);
    }

    /// Reads from Git: commit lags are only known of remotes on this machine.
    fn read(&mut self, record: &HeavenRecord) {
        let Some(head) = self.head.clone() else { return };
        self.conflicts = self.conflicts_in_git();
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

    /// Counts the conflicts in the last 1,000 merge commits that record some.
    fn conflicts_in_git(&self) -> u64 {
        let Some(head) = &self.head else { return 0 };
        let merges = ["log", "--merges", "--max-count=1000", "--grep=^Conflict:", "--format=%b", head];
        let conflicts = git(&self.repository, &merges).unwrap_or_default();
        conflicts.lines().filter(|line| line.starts_with("Conflict:")).count() as u64
    }

    /// Returns the number of unmerged commits, and the time of the last merge.
    #[must_use]
    pub fn behind(&self) -> (Option<u64>, Option<u64>) {
        let lag = self.remotes.iter().map(|remote| remote.lag_commits).reduce(|one, other| Some(one? + other?));
        (lag.flatten(), self.remotes.iter().filter_map(|remote| remote.merged_at).max())
    }
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
            status: None,
            figures: None,
        };
        assert_eq!(report.behind(), (Some(5), Some(3)));
        report.remotes.push(remote(None));
        assert_eq!(report.behind(), (None, Some(3)));
        report.remotes.clear();
        assert_eq!(report.behind(), (None, None));
    }
}

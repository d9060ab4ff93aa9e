//! Flags of the writer lease.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use gitcd_server::config::PerBranch;
use gitcd_sync;
use gitcd_sync::lease::{LONGEST, SHORTEST, Settings};

use super::super::pull::Remotes;
use super::super::{duration, per_branch};

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "One writer at a time")]
pub(super) struct LeaseFlags {
    /// Serve only while no other server can write the branch: hold a lease on a remote that expires this long after its last
    /// renewal, such as 15s; 0: several servers may write, and are merged
    #[arg(
        long,
        env = "GITCD_WRITER_LEASE",
        default_value = "0",
        value_parser = length,
        value_name = "DURATION"
    )]
    writer_lease: Duration,
    /// The remote that stores the lease and gets all commits [default: the only one, or origin]
    #[arg(long, env = "GITCD_WRITER_LEASE_REMOTE", value_name = "MAP")]
    writer_lease_remote: Option<String>,
    /// While another server has the lease, serve reads and watches as of its last push, which is slightly stale even for
    /// linearizable reads; refuse everything else. For a client that is only used when the lease is here, such as a
    /// kube-apiserver of its own
    #[arg(long, env = "GITCD_HOT_STANDBY")]
    hot_standby: bool,
}

/// The parsed flags.
pub(super) struct Leases {
    duration: Duration,
    remotes: PerBranch,
    hot_standby: bool,
}

/// Default poll interval for remotes without change notifications.
const INTERVAL: Duration = Duration::from_secs(10);

fn length(text: &str) -> Result<Duration, String> {
    match if text.is_empty() { Duration::ZERO } else { duration::parse(text)? } {
        Duration::ZERO => Ok(Duration::ZERO),
        short if short < SHORTEST => Err(format!("a lease must last {SHORTEST:?} at least")),
        long if long > LONGEST => Err("a lease must not last longer than a day".to_owned()),
        length => Ok(length),
    }
}

impl LeaseFlags {
    pub(super) fn read(&self) -> anyhow::Result<Leases> {
        let remotes = per_branch("writer-lease-remote", self.writer_lease_remote.as_deref())?;
        if self.writer_lease.is_zero() && !remotes.is_empty() {
            bail!("--writer-lease-remote needs --writer-lease");
        }
        if self.writer_lease.is_zero() && self.hot_standby {
            bail!("--hot-standby needs --writer-lease: without a lease there is no standby");
        }
        Ok(Leases { duration: self.writer_lease, remotes, hot_standby: self.hot_standby })
    }
}

impl Leases {
    /// Returns whether there is to be a lease.
    pub(super) fn is_given(&self) -> bool {
        !self.duration.is_zero()
    }

    pub(super) fn names(&self) -> &PerBranch {
        &self.remotes
    }

    /// Returns the lease of a branch. Its remote is always followed and pushed to, whatever the other flags say: the next holder
    /// of the lease continues from there.
    pub(super) fn of(
        &self,
        branch: &str,
        repository: &Path,
        remotes: &Remotes,
        pull: &mut gitcd_sync::Config,
    ) -> anyhow::Result<Option<Settings>> {
        if self.duration.is_zero() {
            return Ok(None);
        }
        let name = match self.remotes.of(branch) {
            Some(name) => name.to_owned(),
            None => usual(branch, repository, pull)?,
        };
        let remote = match pull.remotes.iter_mut().find(|remote| remote.name == name) {
            Some(remote) => remote,
            None => pull.remotes.push_mut(remotes.remote(&name)),
        };
        remote.fetch = true;
        remote.push_after_merge = true;
        pull.interval.get_or_insert(INTERVAL);
        Ok(Some(Settings { duration: self.duration, remote: remote.clone(), hot_standby: self.hot_standby }))
    }
}

/// Returns the only remote, or `origin`, of those that are followed, else of those in the repository's configuration.
fn usual(branch: &str, repository: &Path, pull: &gitcd_sync::Config) -> anyhow::Result<String> {
    let mut names: Vec<String> = pull.remotes.iter().map(|remote| remote.name.clone()).collect();
    if names.is_empty() {
        let opened = super::super::open_repository(repository).with_context(|| {
            let path = repository.display();
            format!(
                "--writer-lease needs a repository with a remote: create it with `git init --bare {path}` and \
                 `git -C {path} remote add origin URL`"
            )
        })?;
        names = opened.remotes()?.iter().flatten().flatten().map(ToOwned::to_owned).collect();
    }
    match &names[..] {
        [] => {
            bail!("--writer-lease needs a remote: add it with `git -C {} remote add origin URL`", repository.display())
        }
        [only] => Ok(only.clone()),
        _ if names.iter().any(|name| name == "origin") => Ok("origin".to_owned()),
        _ => bail!(
            "branch {branch:?} has the remotes {}: choose the one for the lease with --writer-lease-remote={branch}=NAME",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_not_too_short_and_zero_is_none() {
        assert_eq!(length("0"), Ok(Duration::ZERO));
        assert_eq!(length(""), Ok(Duration::ZERO));
        assert_eq!(length("3s"), Ok(Duration::from_secs(3)));
        for wrong in ["100ms", "25h", "x"] {
            assert!(length(wrong).is_err(), "{wrong}");
        }
    }
}

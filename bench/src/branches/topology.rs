//! Topologies: which branch follows which.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;

use super::{eventually, git};
use crate::child::{Child, free_address};
use crate::data::KeySpace;
use crate::server::Program;
use crate::target::Target;

/// Two hops from one branch to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Topology {
    /// Both push to a branch in a folder without a server, and pull from it.
    Folder,
    /// The same with a Git host, over HTTP.
    Host,
    /// A third gitcd pulls from both, and both pull from it, without pushes.
    Served,
}

impl Topology {
    pub(crate) const ALL: [Self; 3] = [Self::Folder, Self::Host, Self::Served];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::Host => "host",
            Self::Served => "served",
        }
    }

    /// How a write gets from one side to the other.
    pub(crate) fn how(self) -> &'static str {
        match self {
            Self::Folder => "a bare repository on the same disk; each fetches, merges and pushes",
            Self::Host => "`gitcd host` over HTTP; each fetches, merges and pushes",
            Self::Served => "three servers, each of which merges its neighbours; without pushes",
        }
    }

    /// The name in the report.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::Folder => "a branch in a folder that both push to",
            Self::Host => "a branch on a Git host that both push to",
            Self::Served => "a served branch that pulls from both",
        }
    }
}

/// Two branches and what connects them; all stopped on drop.
pub(super) struct Pair {
    pub(super) one: Target,
    pub(super) other: Target,
    upstream: Option<Target>,
    host: Option<Child>,
    _folder: TempDir,
}

impl Pair {
    pub(super) async fn start(
        topology: Topology,
        program: &Program,
        folder: &Path,
        connections: usize,
    ) -> Result<Self> {
        let place = tempfile::Builder::new().prefix("upstream-").tempdir_in(folder)?;
        let shared = place.path().join("up.git");
        let (mut upstream, mut host) = (None, None);
        let url = match topology {
            Topology::Folder => {
                bare(&shared)?;
                shared.display().to_string()
            }
            Topology::Host => {
                bare(&shared)?;
                let address = free_address()?;
                let mut command = Command::new(program.path());
                command.arg("host").arg(format!("--root={}", place.path().display()));
                command.arg(format!("--listen-urls=http://{address}")).arg("--anonymous=own");
                host = Some(Child::start(&mut command, &place.path().join("host.log"))?);
                eventually("the Git host", async || Ok(tokio::net::TcpStream::connect(address).await.is_ok())).await?;
                format!("http://{address}/up.git")
            }
            Topology::Served => {
                let up = follower(program, "upstream", folder, "one:other", false, connections).await?;
                let repository = repository(&up);
                upstream = Some(up);
                repository.display().to_string()
            }
        };
        let pushes = topology != Topology::Served;
        let one = follower(program, "one", folder, "up", pushes, connections).await?;
        let other = follower(program, "other", folder, "up", pushes, connections).await?;
        if let Some(upstream) = &upstream {
            for (name, target) in [("one", &one), ("other", &other)] {
                add_remote(upstream, name, &repository(target).display().to_string())?;
            }
        }
        for target in [&one, &other] {
            add_remote(target, "up", &url)?;
        }
        Ok(Self { one, other, upstream, host, _folder: place })
    }

    /// Fills a space on each side and waits until both have all keys.
    pub(super) async fn fill(&self, spaces: [KeySpace; 2]) -> Result<()> {
        self.one.fill(spaces[0]).await?;
        self.other.fill(spaces[1]).await?;
        for (target, space) in [(&self.one, spaces[1]), (&self.other, spaces[0])] {
            let all = async || Ok(count(target, space).await? >= space.keys);
            eventually("the keys of the other side", all).await?;
        }
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        for target in [self.one, self.other].into_iter().chain(self.upstream) {
            target.server.stop().await?;
        }
        if let Some(mut host) = self.host {
            host.stop().await?;
        }
        Ok(())
    }
}

/// Counts the keys of a space.
async fn count(target: &Target, space: KeySpace) -> Result<u64> {
    let request = gitcd::proto::etcdserverpb::RangeRequest {
        key: space.prefix().into(),
        range_end: space.end(),
        count_only: true,
        ..Default::default()
    };
    Ok(target.client.kv(0).range(request).await?.into_inner().count as u64)
}

/// Starts a server that follows these remotes once they are configured.
pub(super) async fn follower(
    program: &Program,
    label: &str,
    folder: &Path,
    remotes: &str,
    pushes: bool,
    connections: usize,
) -> Result<Target> {
    let arguments = [
        format!("--remote-names=default={remotes}"),
        format!("--push-after-merges=default={pushes}"),
        "--pull-ticker-duration=1s".to_owned(),
    ];
    let server = program.clone().with(&arguments).start(label.to_owned(), folder).await?;
    Target::connect(server, connections, i64::MAX / 4).await
}

pub(super) fn repository(target: &Target) -> PathBuf {
    target.server.repository()
}

pub(crate) fn add_remote(target: &Target, name: &str, url: &str) -> Result<()> {
    git(&repository(target), &["config", &format!("remote.{name}.url"), url])
}

pub(crate) fn bare(path: &Path) -> Result<()> {
    let made = Command::new("git").args(["init", "--quiet", "--bare", "--initial-branch=main"]).arg(path).status();
    anyhow::ensure!(made.context("cannot start git")?.success(), "git init failed");
    Ok(())
}

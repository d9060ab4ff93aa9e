//! The servers as processes: found, started on free ports with fresh folders, stopped by process ID.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::Serialize;
use tempfile::TempDir;

use crate::child::{Child, free_address};
use crate::client::Client;

const READY_LIMIT: Duration = Duration::from_secs(30);
/// Short compared with the start of any server, which is measured too.
const POLL: Duration = Duration::from_millis(5);
const REPOSITORY: &str = "repo.git";

/// A program that serves the etcd v3 API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// This project's server.
    Gitcd,
    /// etcd itself.
    Etcd,
    /// This program's [`crate::bare_wire`]: the limit of a server on this wire.
    #[serde(rename = "bare-wire")]
    BareWire,
}

impl Kind {
    /// The program's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gitcd => "gitcd",
            Self::Etcd => "etcd",
            Self::BareWire => "bare-wire",
        }
    }

    /// Whether the server commits acknowledged writes later, and reports its lag.
    pub(crate) fn commits_later(self) -> bool {
        self == Self::Gitcd
    }

    /// The parts of a data folder, see [`Kind::disk_part`].
    pub(crate) fn disk_parts(self) -> &'static [&'static str] {
        match self {
            Self::Gitcd => &["packs", "journal", "other"],
            Self::Etcd => &["database", "log", "other"],
            Self::BareWire => &["log", "other"],
        }
    }

    /// The part that a file belongs to, by its path in the data folder.
    pub(crate) fn disk_part(self, path: &Path) -> &'static str {
        let within = |folder: &str| path.starts_with(folder);
        match self {
            Self::Gitcd if within("repo.git/objects") => "packs",
            Self::Gitcd if within("repo.git/gitcd") => "journal",
            Self::Etcd if within("member/snap") => "database",
            Self::Etcd if within("member/wal") => "log",
            Self::BareWire if within("log") => "log",
            _ => "other",
        }
    }

    fn find(self) -> Result<PathBuf> {
        let (found, looked) = match self {
            Self::Gitcd => {
                let own = env::current_exe().context("cannot locate this program")?;
                (Some(own.with_file_name("gitcd")), "next to this program")
            }
            Self::Etcd => (find_etcd(), "in $KUBEBUILDER_ASSETS and in ${XDG_CACHE_HOME:-~/.cache}/trishanku/assets"),
            Self::BareWire => {
                (Some(env::current_exe().context("cannot locate this program")?), "where this program was started")
            }
        };
        found.filter(|path| path.is_file()).with_context(|| format!("no {0} {looked}; give --{0} PATH", self.name()))
    }
}

/// Finds the etcd of `make assets`, the newest if there are several.
fn find_etcd() -> Option<PathBuf> {
    let given = env::var_os("KUBEBUILDER_ASSETS").map(|folder| Path::new(&folder).join("etcd"));
    if let Some(given) = given.filter(|path| path.is_file()) {
        return Some(given);
    }
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(env::home_dir()?.join(".cache")))?;
    let assets = fs::read_dir(cache.join("trishanku/assets")).ok()?;
    let mut found: Vec<PathBuf> =
        assets.filter_map(|entry| Some(entry.ok()?.path().join("etcd"))).filter(|path| path.is_file()).collect();
    found.sort();
    found.pop()
}

/// Servers with their names in the report: two of the same kind have numbers.
pub(crate) fn labelled(servers: &[Kind]) -> Vec<(Kind, String)> {
    let label = |(number, kind): (usize, &Kind)| {
        let is_alone = servers.iter().filter(|other| *other == kind).count() == 1;
        let label = if is_alone { kind.name().to_owned() } else { format!("{}-{}", kind.name(), number + 1) };
        (*kind, label)
    };
    servers.iter().enumerate().map(label).collect()
}

/// A program with the user's additional arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    kind: Kind,
    path: PathBuf,
    more: Vec<OsString>,
    /// Arguments for `gitcd init`, and for `gitcd serve`.
    branch: Vec<OsString>,
}

impl Program {
    /// Takes the given program or searches for one.
    ///
    /// # Errors
    /// If there is none; the message names the searched locations.
    pub(crate) fn find(kind: Kind, given: Option<&Path>, more: &[OsString]) -> Result<Self> {
        let path = match given {
            Some(path) => {
                let name = kind.name();
                ensure!(path.is_file(), "--{name} {}: no such file", path.display());
                path.to_owned()
            }
            None => kind.find()?,
        };
        Ok(Self { kind, path, more: more.to_vec(), branch: Vec::new() })
    }

    /// The path of the program.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds arguments before those of the user.
    pub(crate) fn with(mut self, arguments: &[String]) -> Self {
        self.more.splice(..0, arguments.iter().map(OsString::from));
        self
    }

    /// Gives the branch of gitcd other references than its default ones.
    pub(crate) fn with_branch(mut self, data: &str, metadata: &str) -> Self {
        let names = [("data", data), ("metadata", metadata)];
        self.branch = names.map(|(kind, name)| format!("--{kind}-reference-names=default={name}").into()).into();
        self
    }

    /// Starts the program with a fresh data folder below `data`, and waits until it responds.
    pub(crate) async fn start(&self, label: String, data: &Path) -> Result<Server> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{label}-"))
            .tempdir_in(data)
            .with_context(|| format!("cannot create a folder in {}", data.display()))?;
        let store = folder.path().join("data");
        fs::create_dir(&store)?;
        if self.kind == Kind::Gitcd {
            self.init(&store)?;
        }
        let (server, _) = self.resume(Rest { kind: self.kind, label, folder }).await?;
        Ok(server)
    }

    /// Starts the program with the data of a stopped server; returns the time until it responds.
    pub(crate) async fn resume(&self, rest: Rest) -> Result<(Server, Duration)> {
        let Rest { kind, label, folder } = rest;
        let (address, peer) = (free_address()?, free_address()?);
        let log = folder.path().join("server.log");
        let store = folder.path().join("data");
        let mut command = match kind {
            Kind::Gitcd => self.gitcd(&store, address),
            Kind::Etcd => self.etcd(&store, address, peer),
            Kind::BareWire => self.bare_wire(&store, address),
        };
        command.args(&self.more);
        let started = Instant::now();
        let process = Child::start(&mut command, &log)?;
        let mut server = Server { kind, label, version: String::new(), address, process, folder };
        let answer = server.ready().await?;
        let took = started.elapsed();
        server.version = self.version(answer);
        Ok((server, took))
    }

    fn init(&self, store: &Path) -> Result<()> {
        let made = Command::new(&self.path).arg("init").arg(repo(store)).args(&self.branch).output();
        let made = made.with_context(|| format!("cannot start {}", self.path.display()))?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "gitcd init failed: {said}");
        Ok(())
    }

    fn gitcd(&self, store: &Path, address: SocketAddr) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg("serve")
            .arg(repo(store))
            .arg(format!("--listen-urls=default=http://{address}"))
            .arg("--key-prefixes=default=/registry")
            .args(&self.branch);
        command
    }

    fn etcd(&self, store: &Path, client: SocketAddr, peer: SocketAddr) -> Command {
        let mut folder = OsString::from("--data-dir=");
        folder.push(store);
        let mut command = Command::new(&self.path);
        command
            .arg(folder)
            .arg("--name=bench")
            .arg(format!("--listen-client-urls=http://{client}"))
            .arg(format!("--advertise-client-urls=http://{client}"))
            .arg(format!("--listen-peer-urls=http://{peer}"))
            .arg(format!("--initial-advertise-peer-urls=http://{peer}"))
            .arg(format!("--initial-cluster=bench=http://{peer}"))
            .arg("--log-level=warn");
        command
    }

    fn bare_wire(&self, store: &Path, address: SocketAddr) -> Command {
        let mut folder = OsString::from("--data-dir=");
        folder.push(store);
        let mut command = Command::new(&self.path);
        command.arg("bare-wire").arg(format!("--listen={address}")).arg(folder);
        command
    }

    /// The version for the report. gitcd's API reports etcd's, so the program is asked for its own.
    fn version(&self, served: String) -> String {
        match self.kind {
            Kind::Etcd | Kind::BareWire => served,
            Kind::Gitcd => self.own_version().unwrap_or(served),
        }
    }

    /// The output of `gitcd version`.
    pub(crate) fn own_version(&self) -> Option<String> {
        let output = Command::new(&self.path).arg("version").output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&output.stdout);
        let line = text.lines().next()?.trim_start_matches("gitcd").trim();
        (!line.is_empty()).then(|| line.to_owned())
    }
}

fn repo(store: &Path) -> OsString {
    let mut argument = OsString::from("--repo=");
    argument.push(store.join(REPOSITORY));
    argument
}

/// The data of a stopped server; removed on drop.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The kind of the server.
    pub(crate) kind: Kind,
    label: String,
    folder: TempDir,
}

/// A running server; killed on drop, and its folder removed.
#[derive(Debug)]
pub(crate) struct Server {
    /// The kind of the server.
    pub(crate) kind: Kind,
    /// The name in the report.
    pub(crate) label: String,
    /// The version in the report.
    pub(crate) version: String,
    address: SocketAddr,
    // Dropped before the folder, so that the process does not write while it is removed.
    process: Child,
    folder: TempDir,
}

impl Server {
    /// The process ID.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The client address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The client URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The folder that holds all its data and nothing else.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// gitcd's repository.
    pub(crate) fn repository(&self) -> PathBuf {
        self.data().join(REPOSITORY)
    }

    /// Returns the number of data commits so far; `None` for other servers, which have none.
    ///
    /// The repository has one branch, the data reference; metadata is not in a branch.
    pub(crate) fn commits(&self) -> Result<Option<u64>> {
        if !self.kind.commits_later() {
            return Ok(None);
        }
        let counted = Command::new("git")
            .arg("--git-dir")
            .arg(self.repository())
            .args(["rev-list", "--count", "--branches"])
            .output()
            .context("cannot start git to count the commits")?;
        let said = String::from_utf8_lossy(&counted.stderr);
        ensure!(counted.status.success(), "git rev-list failed: {said}");
        let count = String::from_utf8_lossy(&counted.stdout).trim().parse()?;
        Ok(Some(count))
    }

    /// Waits until the server responds and returns its version.
    async fn ready(&mut self) -> Result<String> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("{} exited at startup ({status}):\n{}", self.label, self.last_words());
            }
            let refused = match Client::connect(&self.url(), 1).await {
                Ok(client) => match client.status().await {
                    Ok(status) => return Ok(status.version),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if start.elapsed() > READY_LIMIT {
                let said = self.last_words();
                return Err(refused.context(format!("{} is not ready:\n{said}", self.label)));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The end of the server's log.
    pub(crate) fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// Stops the server with SIGTERM, as a service manager would, and removes its data.
    ///
    /// # Errors
    /// If it does not exit in time and is killed, or if it exits with a failure.
    pub(crate) async fn stop(self) -> Result<()> {
        self.rest().await?;
        Ok(())
    }

    /// Stops the server with SIGTERM and keeps its data.
    ///
    /// # Errors
    /// Like [`Server::stop`]; the data is then removed.
    pub(crate) async fn rest(mut self) -> Result<Rest> {
        let stopped = self.process.stop().await;
        let status = stopped.with_context(|| format!("{} did not stop", self.label))?;
        // etcd re-raises the signal that stopped it; gitcd exits with 0.
        let clean = status.success() || self.kind == Kind::Etcd;
        ensure!(clean, "{} stopped with {status}:\n{}", self.label, self.last_words());
        Ok(Rest { kind: self.kind, label: self.label, folder: self.folder })
    }
}

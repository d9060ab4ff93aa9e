//! The servers as processes: found, started on free ports with fresh folders, ended by id.

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
/// Short beside the start of any server, which is measured too.
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
}

impl Kind {
    /// The program's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gitcd => "gitcd",
            Self::Etcd => "etcd",
        }
    }

    /// Whether it makes commits some time after it has acknowledged writes, and reports their lag.
    pub(crate) fn commits_later(self) -> bool {
        self == Self::Gitcd
    }

    /// The parts that a data folder is made of, see [`Kind::disk_part`].
    pub(crate) fn disk_parts(self) -> &'static [&'static str] {
        match self {
            Self::Gitcd => &["packs", "journal", "other"],
            Self::Etcd => &["database", "log", "other"],
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
            _ => "other",
        }
    }

    fn find(self) -> Result<PathBuf> {
        let (found, looked) = match self {
            Self::Gitcd => {
                let own = env::current_exe().context("where is this program?")?;
                (Some(own.with_file_name("gitcd")), "next to this program")
            }
            Self::Etcd => (find_etcd(), "in $KUBEBUILDER_ASSETS and in ${XDG_CACHE_HOME:-~/.cache}/trishanku/assets"),
        };
        found.filter(|path| path.is_file()).with_context(|| format!("no {0} {looked}; give --{0} PATH", self.name()))
    }
}

/// etcd where `make assets` puts it, the newest if there are several.
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

/// A program and the arguments that a user adds to ours.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    kind: Kind,
    path: PathBuf,
    more: Vec<OsString>,
}

impl Program {
    /// Takes the given program or looks for one.
    ///
    /// # Errors
    /// There is none; the message tells where it was looked for.
    pub(crate) fn find(kind: Kind, given: Option<&Path>, more: &[OsString]) -> Result<Self> {
        let path = match given {
            Some(path) => {
                let name = kind.name();
                ensure!(path.is_file(), "--{name} {}: no such file", path.display());
                path.to_owned()
            }
            None => kind.find()?,
        };
        Ok(Self { kind, path, more: more.to_vec() })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The same with more arguments, before those of the user.
    pub(crate) fn with(mut self, arguments: &[String]) -> Self {
        self.more.splice(..0, arguments.iter().map(OsString::from));
        self
    }

    /// Starts it with a fresh data folder below `data`; it answers requests when this returns.
    pub(crate) async fn start(&self, label: String, data: &Path) -> Result<Server> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("{label}-"))
            .tempdir_in(data)
            .with_context(|| format!("cannot make a folder in {}", data.display()))?;
        let store = folder.path().join("data");
        fs::create_dir(&store)?;
        if self.kind == Kind::Gitcd {
            self.init(&store)?;
        }
        let (server, _) = self.resume(Rest { kind: self.kind, label, folder }).await?;
        Ok(server)
    }

    /// Starts it with the data of a server that was ended; gives the time until it answered.
    pub(crate) async fn resume(&self, rest: Rest) -> Result<(Server, Duration)> {
        let Rest { kind, label, folder } = rest;
        let (address, peer) = (free_address()?, free_address()?);
        let log = folder.path().join("server.log");
        let store = folder.path().join("data");
        let mut command = match kind {
            Kind::Gitcd => self.gitcd(&store, address),
            Kind::Etcd => self.etcd(&store, address, peer),
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
        let made = Command::new(&self.path).arg("init").arg(repo(store)).output();
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
            .arg("--key-prefixes=default=/registry");
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

    /// The version for the report. gitcd answers the API as etcd does, so its own is asked for.
    fn version(&self, served: String) -> String {
        match self.kind {
            Kind::Etcd => served,
            Kind::Gitcd => self.own_version().unwrap_or(served),
        }
    }

    /// What `gitcd version` prints.
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

/// The data of a server that was ended. Dropping it removes its folder.
#[derive(Debug)]
pub(crate) struct Rest {
    /// What it is.
    pub(crate) kind: Kind,
    label: String,
    folder: TempDir,
}

/// A running server. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub(crate) struct Server {
    /// What it is.
    pub(crate) kind: Kind,
    /// What the report calls it.
    pub(crate) label: String,
    /// Its version.
    pub(crate) version: String,
    address: SocketAddr,
    // Dropped before the folder: nothing must write there while it is removed.
    process: Child,
    folder: TempDir,
}

impl Server {
    /// The process's id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Where it listens for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as a URL.
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

    /// Number of data commits so far, 0 before the first one; nothing for etcd, which has none.
    ///
    /// The repository has one branch, the data ref; metadata is not in a branch.
    pub(crate) fn commits(&self) -> Result<Option<u64>> {
        if !self.kind.commits_later() {
            return Ok(None);
        }
        let counted = Command::new("git")
            .arg("--git-dir")
            .arg(self.repository())
            .args(["rev-list", "--count", "--branches"])
            .output()
            .context("git cannot be started; it counts the commits")?;
        let said = String::from_utf8_lossy(&counted.stderr);
        ensure!(counted.status.success(), "git rev-list failed: {said}");
        let count = String::from_utf8_lossy(&counted.stdout).trim().parse()?;
        Ok(Some(count))
    }

    /// Waits until it answers and returns the version that it serves.
    async fn ready(&mut self) -> Result<String> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.ended()? {
                bail!("{} ended at once ({status}):\n{}", self.label, self.last_words());
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

    /// The end of what the server logged.
    pub(crate) fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// Ends it as a service manager would and removes its data.
    ///
    /// # Errors
    /// It did not end in time, and was killed; or it ended with a failure.
    pub(crate) async fn stop(self) -> Result<()> {
        self.rest().await?;
        Ok(())
    }

    /// Ends it as a service manager would and keeps its data.
    ///
    /// # Errors
    /// As [`Server::stop`]; the data is removed then.
    pub(crate) async fn rest(mut self) -> Result<Rest> {
        let stopped = self.process.stop().await;
        let status = stopped.with_context(|| format!("{} did not stop", self.label))?;
        // etcd re-raises the signal that ended it; gitcd exits with 0.
        let clean = status.success() || self.kind == Kind::Etcd;
        ensure!(clean, "{} stopped with {status}:\n{}", self.label, self.last_words());
        Ok(Rest { kind: self.kind, label: self.label, folder: self.folder })
    }
}

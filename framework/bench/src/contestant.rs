//! A contestant: a running controller of pairs.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gitcd_bench::child::{Child, free_address};
use gitcd_bench::process;
use serde::Serialize;
use serde_json::json;
use trishanku_testkit::TestCluster;

use crate::reconciles::Reconciles;

/// The library of a contestant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The framework.
    Framework,
    /// kube-runtime alone.
    KubeRuntime,
    /// Go's controller-runtime with its defaults.
    Go,
    /// Go's controller-runtime without `managedFields` in its cache, as in the framework.
    GoStripped,
}

impl Kind {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Framework => "framework",
            Self::KubeRuntime => "kube-runtime",
            Self::Go => "go",
            Self::GoStripped => "go-stripped",
        }
    }

    /// Returns the user of its requests, for the audit log.
    pub fn user(self) -> String {
        format!("pairs-on-{}", self.name())
    }

    /// Returns the file name of its program.
    fn program(self) -> &'static str {
        match self {
            Self::Framework => "pairs-framework",
            Self::KubeRuntime => "pairs-kube-runtime",
            Self::Go | Self::GoStripped => "pairs-go",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        if self == Self::GoStripped { &["--strip-managed-fields"] } else { &[] }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The folder of the programs.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

impl Programs {
    /// Uses the programs in this folder.
    pub fn within(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// Returns the path of a contestant's program.
    ///
    /// # Errors
    /// The program does not exist; the message says how to build it.
    pub fn of(&self, kind: Kind) -> Result<PathBuf> {
        let path = self.0.join(kind.program());
        ensure!(path.is_file(), "{} does not exist; `make bench-framework` builds all contestants", path.display());
        Ok(path)
    }
}

/// The settings of a contestant.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Objects at a time.
    pub concurrency: u16,
    /// Time between two resyncs; a whole number of seconds.
    pub resync: Duration,
}

/// A running contestant. It is killed when this is dropped.
#[derive(Debug)]
pub struct Contestant {
    kind: Kind,
    child: Child,
    metrics: SocketAddr,
    /// Start time, by the clock of this process and by that of the audit log.
    started: (Instant, SystemTime),
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Memory {
    /// Resident memory.
    pub resident: u64,
    /// The private part of it: heap and stacks.
    pub own: u64,
}

impl Contestant {
    /// Starts a contestant on a cluster, with its files in `folder`.
    ///
    /// # Errors
    /// Its program cannot be started, or a file not be written.
    pub fn start(kind: Kind, program: &Path, cluster: &TestCluster, folder: &Path, settings: Settings) -> Result<Self> {
        let kubeconfig = write_kubeconfig(cluster, &kind.user(), folder)?;
        let metrics = free_address()?;
        let mut command = Command::new(program);
        command
            .env("KUBECONFIG", kubeconfig)
            .arg(format!("--metrics-bind-address={metrics}"))
            .arg(format!("--concurrency={}", settings.concurrency))
            .arg(format!("--resync={}", settings.resync.as_secs()))
            .args(kind.arguments());
        let started = (Instant::now(), SystemTime::now());
        let child = Child::start(&mut command, &folder.join(format!("{kind}.log")))?;
        Ok(Self { kind, child, metrics, started })
    }

    /// Returns its library.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns its start time, by the clock of the audit log.
    pub fn started(&self) -> SystemTime {
        self.started.1
    }

    /// Returns how long it has been running.
    pub fn age(&self) -> Duration {
        self.started.0.elapsed()
    }

    /// Checks that it is running.
    ///
    /// # Errors
    /// It has exited; the message has its last lines.
    pub fn check(&mut self) -> Result<()> {
        match self.child.ended()? {
            Some(status) => bail!("{} ended with {status}:\n{}", self.kind, self.child.last_words()),
            None => Ok(()),
        }
    }

    /// Returns what it has reconciled so far; zero while it does not respond.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub async fn reconciles(&mut self) -> Result<Reconciles> {
        self.check()?;
        Ok(Reconciles::of(self.metrics).await.unwrap_or_default())
    }

    /// Returns the CPU time that it has used.
    ///
    /// # Errors
    /// The process is gone.
    pub fn cpu(&self) -> Result<Duration> {
        process::cpu(self.child.pid())
    }

    /// Returns its current memory.
    ///
    /// # Errors
    /// The process is gone.
    pub fn memory(&self) -> Result<Memory> {
        let process::Resident { anonymous, file } = process::resident(self.child.pid())?;
        Ok(Memory { resident: anonymous + file, own: anonymous })
    }

    /// Returns its peak resident memory.
    ///
    /// # Errors
    /// The process is gone.
    pub fn peak_memory(&self) -> Result<u64> {
        process::peak_memory(self.child.pid())
    }

    /// Stops it.
    ///
    /// # Errors
    /// It does not exit, or exits with an error.
    pub async fn stop(mut self) -> Result<()> {
        let status = self.child.stop().await?;
        ensure!(status.success(), "{} ended with {status}:\n{}", self.kind, self.child.last_words());
        Ok(())
    }
}

/// Writes a kubeconfig for `user`, as a cluster administrator.
fn write_kubeconfig(cluster: &TestCluster, user: &str, folder: &Path) -> Result<PathBuf> {
    let mut config = cluster.config();
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned()]);
    let authority = config.root_cert.iter().flatten().map(|der| pem(der)).collect::<String>();
    let name = "bench";
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{"name": name, "cluster": {
            "server": config.cluster_url.to_string(), "certificate-authority-data": BASE64_STANDARD.encode(authority),
        }}],
        "users": [{"name": name, "user": config.auth_info}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    });
    let path = folder.join(format!("{user}.kubeconfig"));
    fs::write(&path, kubeconfig.to_string()).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect::<Vec<_>>().join("\n");
    format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n")
}

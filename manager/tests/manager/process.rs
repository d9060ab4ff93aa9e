//! Runs the manager and kubectl.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::{Pid, Signal, kill_process};
use trishanku_testkit::{TestCluster, wait};

static STARTED: AtomicU8 = AtomicU8::new(1);

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kustomize")
}

/// Runs kubectl against the cluster.
pub(crate) fn kubectl(cluster: &TestCluster, arguments: &[&str]) -> Output {
    let mut command = Command::new(kubectl_program());
    command.env("KUBECONFIG", cluster.kubeconfig(None)).args(arguments).output().unwrap()
}

/// Runs kubectl against the cluster, and returns what it prints. Panics if it fails.
#[allow(dead_code, reason = "not used by a benchmark")]
pub(crate) fn run(cluster: &TestCluster, arguments: &[&str]) -> String {
    let output = kubectl(cluster, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the commands of docs/operate.md that start so, word for word. They have no quotes.
#[allow(dead_code, reason = "not used by a benchmark")]
pub(crate) fn documented(cluster: &TestCluster, start: &str) {
    let documentation = include_str!("../../../docs/operate.md");
    let commands: Vec<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .filter(|line| line.starts_with(start))
        .collect();
    assert!(!commands.is_empty(), "docs/operate.md has no command `{start}…`");
    for command in commands {
        run(cluster, &command.split(' ').skip(1).collect::<Vec<_>>());
    }
}

pub(crate) fn kubectl_program() -> PathBuf {
    let assets = ["KUBEBUILDER_ASSETS", "TRISHANKU_ASSETS"].iter().find_map(std::env::var_os);
    assets.map_or_else(|| PathBuf::from("kubectl"), |folder| PathBuf::from(folder).join("kubectl"))
}

/// A running manager; stopped when dropped.
pub(crate) struct Manager {
    program: Child,
    host: String,
}

impl Manager {
    pub(crate) fn start(cluster: &TestCluster, user: &str, arguments: &[&str]) -> Self {
        // Each replica in each test process has its own loopback address, so that ports never conflict.
        let [.., high, low] = std::process::id().to_be_bytes();
        let host = format!("127.{}.{high}.{low}", STARTED.fetch_add(1, Ordering::Relaxed));
        let mut command = Command::new(env!("CARGO_BIN_EXE_manager"));
        command.env("KUBECONFIG", cluster.kubeconfig(Some(user)));
        command
            .arg(format!("--health-probe-bind-address={host}:8081"))
            .arg(format!("--metrics-bind-address={host}:8080"));
        Self { program: command.args(arguments).stdin(Stdio::null()).spawn().unwrap(), host }
    }

    /// Its process id.
    #[allow(dead_code, reason = "used by a benchmark")]
    pub(crate) fn id(&self) -> u32 {
        self.program.id()
    }

    /// Requests a page until the status is 200.
    pub(crate) async fn page(&self, port: u16, path: &str) -> String {
        let answered = wait::until(path, async || {
            let answer = self.ask(port, path).map_err(|error| error.to_string())?;
            if answer.starts_with("HTTP/1.1 200") { Ok(answer) } else { Err(answer) }
        });
        answered.await.unwrap()
    }

    /// Requests metrics, with or without a token; returns the status code, then the page.
    pub(crate) fn figures(&self, token: Option<&str>) -> String {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--write-out", "%{stderr}%{http_code}"]);
        if let Some(token) = token {
            curl.arg("--header").arg(format!("authorization: Bearer {token}"));
        }
        let output = curl.arg(format!("https://{}:8080/metrics", self.host)).output().unwrap();
        [output.stderr, output.stdout].map(|text| String::from_utf8_lossy(&text).into_owned()).join("\n")
    }

    fn ask(&self, port: u16, path: &str) -> std::io::Result<String> {
        let (mut stream, mut answer) = (TcpStream::connect((self.host.as_str(), port))?, String::new());
        write!(stream, "GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.host)?;
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) async fn end(mut self) -> ExitStatus {
        // Before wait(), so the id is still valid.
        kill_process(Pid::from_child(&self.program), Signal::TERM).unwrap();
        let ended = wait::until("its exit", async || self.program.try_wait().unwrap().ok_or("it runs"));
        ended.await.unwrap()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ended = self.program.kill();
        let _waited = self.program.wait();
    }
}

//! Starts, kills and restarts a store as an operating-system process.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tonic::transport::Channel;

use super::{Client, PATIENCE, Repository, assets, http};

/// The program that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This crate's binary.
    Gitcd,
    /// A real etcd from the assets folder.
    Etcd,
}

impl Kind {
    /// The program under test: gitcd, unless `GITCD_TEST_SERVER=etcd`.
    pub(crate) fn under_test() -> Self {
        match std::env::var("GITCD_TEST_SERVER").as_deref() {
            Ok("etcd") => Self::Etcd,
            Ok("gitcd") | Err(_) => Self::Gitcd,
            Ok(other) => panic!("GITCD_TEST_SERVER must be gitcd or etcd, not {other}"),
        }
    }

    fn program(self) -> PathBuf {
        match self {
            Self::Gitcd => env!("CARGO_BIN_EXE_gitcd").into(),
            Self::Etcd => assets::program("etcd"),
        }
    }
}

/// A server's launch options; [`Server::start`] is the short form.
pub(crate) struct Launch {
    kind: Kind,
    program: PathBuf,
    /// The folder of its state, prepared by the caller; a new one unless set.
    folder: Option<PathBuf>,
    /// The folder of a state to copy.
    copied: Option<PathBuf>,
    port: Option<u16>,
    secure: Option<u16>,
    /// Words put before the program, such as `setpriv --reuid=…`.
    wrapper: Vec<String>,
    arguments: Vec<String>,
    /// Default flags to omit.
    without: Vec<String>,
}

impl Launch {
    pub(crate) fn new(kind: Kind) -> Self {
        Self {
            kind,
            program: kind.program(),
            folder: None,
            copied: None,
            port: None,
            secure: None,
            wrapper: Vec::new(),
            arguments: Vec::new(),
            without: Vec::new(),
        }
    }

    /// Serves the state in `folder`, which outlives the server.
    pub(crate) fn folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Serves a copy of the state in `folder`.
    pub(crate) fn copy_of(mut self, folder: &Path) -> Self {
        self.copied = Some(folder.to_owned());
        self
    }

    /// Runs a copy of the program.
    pub(crate) fn program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
        self
    }

    pub(crate) fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Makes gitcd also listen for TLS; its certificates are arguments.
    pub(crate) fn secure(mut self) -> Self {
        self.secure = Some(free_port());
        self
    }

    /// Sets the TLS port of a server whose URLs are arguments.
    pub(crate) fn secure_at(mut self, port: u16) -> Self {
        self.secure = Some(port);
        self
    }

    /// Runs the program through another one, such as `setpriv`.
    pub(crate) fn wrapper(mut self, words: &[&str]) -> Self {
        self.wrapper = words.iter().map(ToString::to_string).collect();
        self
    }

    /// Adds `--flag=value`, replacing the flag's default.
    pub(crate) fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Omits a default flag.
    pub(crate) fn without(mut self, flag: &str) -> Self {
        self.without.push(flag.to_owned());
        self
    }

    /// Starts the program without waiting until it serves.
    pub(crate) fn spawn(self) -> Server {
        let temporary = tempfile::tempdir().expect("the temporary folder is writable");
        let folder = self.folder.unwrap_or_else(|| {
            if let Some(folder) = &self.copied {
                let to = temporary.path();
                let copied = Command::new("cp").arg("-a").arg(folder.join(".")).arg(to).status();
                assert!(copied.is_ok_and(|status| status.success()), "{} cannot be copied", folder.display());
            } else if self.kind == Kind::Gitcd {
                Repository::init(&temporary.path().join("repo.git"));
            }
            temporary.path().to_owned()
        });
        let mut server = Server {
            kind: self.kind,
            program: self.program,
            folder,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, self.port.unwrap_or_else(free_port))),
            secure: self.secure.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
            wrapper: self.wrapper,
            arguments: self.arguments,
            without: self.without,
            log: temporary.path().join("log"),
            child: None,
            temporary,
        };
        server.spawn();
        server
    }

    /// Starts the program and waits until it serves.
    pub(crate) async fn start(self) -> Server {
        let mut server = self.spawn();
        server.ready().await;
        server
    }
}

/// A process that serves the etcd API on a loopback port, with its state in a temporary folder.
///
/// Dropping it kills the process.
pub(crate) struct Server {
    kind: Kind,
    program: PathBuf,
    folder: PathBuf,
    address: SocketAddr,
    secure: Option<SocketAddr>,
    wrapper: Vec<String>,
    arguments: Vec<String>,
    without: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    temporary: TempDir,
}

/// A process's exit status and output.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) status: ExitStatus,
    pub(crate) output: String,
}

impl Server {
    pub(crate) async fn start(kind: Kind) -> Self {
        Launch::new(kind).start().await
    }

    /// Returns a client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.kind, self.address).await
    }

    /// Returns a new connection, for calls that [`Client`] does not have.
    pub(crate) async fn channel(&self) -> Channel {
        super::client::connect(self.address).await
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its TLS listener.
    pub(crate) fn secure_address(&self) -> SocketAddr {
        self.secure.expect("the server was launched with TLS")
    }

    /// The process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().expect("the server is running").id()
    }

    /// The folder of its state.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets the state's new folder, for a server that is not running.
    pub(crate) fn move_to(&mut self, folder: &Path) {
        assert!(self.child.is_none(), "a running server's state cannot be moved");
        folder.clone_into(&mut self.folder);
    }

    /// gitcd's repository, which holds all of its state.
    pub(crate) fn repository(&self) -> Repository {
        Repository::at(&self.folder.join("repo.git"))
    }

    /// Fetches a path that must respond with 200; returns the body.
    pub(crate) async fn page(&self, path: &str) -> String {
        let (status, body) = http::fetch(self.address, path).await.expect("the server answers HTTP");
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Fetches a path; returns status and body.
    pub(crate) async fn answer(&self, path: &str) -> (u16, String) {
        http::fetch(self.address, path).await.expect("the server answers HTTP")
    }

    /// Like [`Server::answer`], for a server that may cut the connection.
    pub(crate) async fn try_answer(&self, path: &str) -> Option<(u16, String)> {
        http::fetch(self.address, path).await.ok()
    }

    /// Kills the process with SIGKILL: nothing is flushed, no handler runs.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        child.kill().expect("the child is ours");
        child.wait().expect("the child is ours");
    }

    /// Sends SIGTERM and waits for a graceful exit.
    pub(crate) async fn terminate(&mut self) -> Exit {
        self.ask_to_stop();
        let exit = self.exit().await;
        // etcd cleans up and then kills itself by the same signal.
        let status = &exit.status;
        let peaceful = status.success() || self.kind == Kind::Etcd && status.signal() == Some(Signal::TERM.as_raw());
        assert!(peaceful, "after SIGTERM, exited with {status}:\n{}", exit.output);
        exit
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("the server is running");
        kill_process(Pid::from_child(child), signal).expect("the child is ours");
    }

    /// Waits until the process exits by itself.
    pub(crate) async fn exit(&mut self) -> Exit {
        let status = super::eventually("the server to exit", async || self.ended()).await;
        self.child = None;
        Exit { status, output: self.output() }
    }

    /// Restarts it with the same state and port, and waits until it serves.
    pub(crate) async fn restart(&mut self) {
        self.begin_restart();
        self.ready().await;
    }

    /// Restarts it without waiting until it serves.
    pub(crate) fn begin_restart(&mut self) {
        assert!(self.child.is_none(), "the server is still running");
        self.spawn();
    }

    /// Restarts it; returns its exit if it exits instead of serving.
    pub(crate) async fn restart_or_end(&mut self) -> Option<Exit> {
        self.begin_restart();
        let served = super::eventually("a healthy server or its exit", async || {
            let healthy = matches!(http::fetch(self.address, "/health").await, Ok((200, _)));
            (healthy || self.ended().is_some()).then_some(healthy)
        })
        .await;
        if served { None } else { Some(self.exit().await) }
    }

    /// Restarts it, which must fail, and returns its exit.
    pub(crate) async fn restart_in_vain(&mut self) -> Exit {
        self.begin_restart();
        self.exit().await
    }

    /// The standard output and error of the latest run.
    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until the server reports healthy.
    pub(crate) async fn ready(&mut self) {
        let start = Instant::now();
        loop {
            if let Ok((200, _)) = http::fetch(self.address, "/health").await {
                return;
            }
            if let Some(status) = self.ended() {
                panic!("{:?} exited at startup, {status}:\n{}", self.kind, self.output());
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{:?} is not healthy after {PATIENCE:?}:\n{}",
                self.kind,
                self.output()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("the child is ours")
    }

    fn spawn(&mut self) {
        let log = File::create(&self.log).expect("the temporary folder is writable");
        let program = [self.program.display().to_string()];
        let mut arguments = match self.kind {
            Kind::Gitcd => self.gitcd(),
            Kind::Etcd => self.etcd(),
        };
        let flag = |argument: &str| argument.split('=').next().map(ToOwned::to_owned);
        let replaced = self.arguments.iter().chain(&self.without);
        arguments.retain(|usual| !replaced.clone().any(|own| flag(own) == flag(usual)));
        let words: Vec<_> = self.wrapper.iter().chain(&program).collect();
        let child = Command::new(words[0])
            .args(&words[1..])
            .args(arguments)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the file handle can be cloned"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{words:?}: {error}"));
        self.child = Some(child);
    }

    fn gitcd(&self) -> Vec<String> {
        let secure = self.secure.map(|address| format!(";https://{address}")).unwrap_or_default();
        vec![
            "serve".to_owned(),
            format!("--repo={}", self.folder.join("repo.git").display()),
            "--key-prefixes=default=/registry".to_owned(),
            format!("--listen-urls=default=http://{}{secure}", self.address),
        ]
    }

    fn etcd(&self) -> Vec<String> {
        let client = format!("http://{}", self.address);
        let peer = format!("http://127.0.0.1:{}", free_port());
        vec![
            "--name=test".to_owned(),
            "--log-level=warn".to_owned(),
            format!("--data-dir={}", self.folder.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=test={peer}"),
            // SIGKILL does not empty the page cache, so even the crash checks hold without fsync.
            "--unsafe-no-fsync".to_owned(),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have exited by itself; an error cannot be reported here.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- last output of {:?} in {}:", self.kind, self.folder.display());
            let output = self.output();
            for line in output.lines().rev().take(30).collect::<Vec<_>>().into_iter().rev() {
                eprintln!("    {line}");
            }
        }
    }
}

/// Returns a port below the ephemeral range: an outgoing connection could otherwise take the port while its server is down
/// between a kill and a restart. No other test program gets it as long as this one runs.
pub(crate) fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    loop {
        let port = rand::random_range(12_000..32_000);
        let Ok(reserved) = reserve(port) else { continue };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            RESERVED.lock().expect("no thread panics while holding the lock").push(reserved);
            return port;
        }
    }
}

/// Reserves a port, as `trishanku up` does: a Unix socket with an abstract name belongs to the same network namespace, and ends with
/// its process.
fn reserve(port: u16) -> std::io::Result<UnixListener> {
    let name = std::os::unix::net::SocketAddr::from_abstract_name(format!("trishanku-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

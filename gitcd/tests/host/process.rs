//! A `gitcd host` process.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::eventually;
use super::git::Repository;

/// A process that serves the repositories in a temporary folder; killed on drop.
pub(crate) struct Host {
    child: Option<Child>,
    address: SocketAddr,
    arguments: Vec<String>,
    folder: TempDir,
}

impl Host {
    /// Starts a host with an empty repository `a.git`.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let host = Self::prepare(arguments);
        Repository::init_bare(&host.root().join("a.git"));
        host.running()
    }

    /// Prepares a host without starting it.
    pub(crate) fn prepare(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("the temporary folder is writable");
        std::fs::create_dir(folder.path().join("root")).expect("the folder does not exist yet");
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { child: None, address: SocketAddr::from(([127, 0, 0, 1], 0)), arguments, folder }
    }

    /// Sets a flag of the form `--flag=value`, replacing an earlier value.
    pub(crate) fn argument(mut self, argument: String) -> Self {
        let flag = argument.split('=').next().map(ToOwned::to_owned);
        self.arguments.retain(|former| former.split('=').next() != flag.as_deref());
        self.arguments.push(argument);
        self
    }

    pub(crate) fn running(mut self) -> Self {
        self.restart();
        self
    }

    /// Starts the process and waits until it listens.
    pub(crate) fn restart(&mut self) {
        self.spawn();
        self.address = eventually("a listening host", || {
            assert!(self.ended().is_none(), "the host exited: {}", self.log());
            let log = self.log();
            log.lines().find(|line| line.contains("hosting"))?.rsplit_once("address=")?.1.trim().parse().ok()
        });
    }

    /// Starts the process, which must exit with an error, and returns its output.
    pub(crate) fn refused(mut self) -> String {
        self.spawn();
        let status = eventually("the host to exit", || self.ended());
        assert!(!status.success());
        self.log()
    }

    fn spawn(&mut self) {
        assert!(self.child.is_none(), "the host is already running");
        let log = File::create(self.folder.path().join("log")).expect("the temporary folder is writable");
        let mut arguments =
            vec![format!("--root={}", self.root().display()), "--listen-urls=http://127.0.0.1:0".to_owned()];
        let flag = |argument: &str| argument.split('=').next().map(ToOwned::to_owned);
        arguments.retain(|usual| !self.arguments.iter().any(|own| flag(own) == flag(usual)));
        let child = Command::new(env!("CARGO_BIN_EXE_gitcd"))
            .arg("host")
            .args(arguments)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("gitcd can be started"));
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("the child is ours")
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("the host is running");
        child.kill().expect("the child is ours");
        child.wait().expect("the child is ours");
    }

    /// Sends SIGTERM and waits for a successful exit.
    pub(crate) fn terminate(&mut self) {
        let child = self.child.as_ref().expect("the host is running");
        kill_process(Pid::from_child(child), Signal::TERM).expect("the child is ours");
        let status = eventually("the host to exit", || self.ended());
        assert!(status.success(), "{status}: {}", self.log());
        self.child = None;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the host is running").id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    pub(crate) fn repository(&self, name: &str) -> Repository {
        Repository::at(&self.root().join(name))
    }

    /// Returns a clone of `a.git` with one commit, which has been pushed.
    pub(crate) fn work(&self, name: &str) -> Repository {
        let work = self.clone(name);
        work.commit("first");
        work.git(&["push", "--quiet", "origin", "main"]);
        work
    }

    pub(crate) fn clone(&self, name: &str) -> Repository {
        let folder = self.folder.path().join(name);
        Repository::clone(&self.url("a.git"), &folder, &[])
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Lists the temporary files of pushes: none may remain afterwards.
    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.root()];
        while let Some(folder) = folders.pop() {
            for entry in folder.read_dir().into_iter().flatten().flatten() {
                let path = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if ["tmp_", ".gitcd-new-"].iter().any(|prefix| name.starts_with(prefix))
                    || [".keep", ".lock"].iter().any(|suffix| name.ends_with(suffix))
                {
                    found.push(path);
                } else if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        found
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have exited by itself; an error cannot be reported here.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of the host:\n{}", self.log());
        }
    }
}

//! The `git` program, run with nothing of this process's surroundings.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// What is kept of what a program complains about.
const COMPLAINT_BYTES: usize = 4 << 10;

/// A program that is asked to end has so long for it.
const MANNERS: Duration = Duration::from_secs(5);

/// How to run `git`.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
}

impl Program {
    /// Looks whether there is one.
    ///
    /// # Errors
    /// It cannot be run.
    pub async fn find() -> io::Result<Self> {
        let program = Self { path: std::env::var_os("PATH").unwrap_or_default() };
        let output = program.command(&["--version"]).output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        tracing::debug!(version = said.trim(), "found git");
        if output.status.success() { Ok(program) } else { Err(io::Error::other(output.status.to_string())) }
    }

    /// `git ARGUMENTS`. Nobody's configuration but the repository's counts; no hook, no helper and no shell is run. It is killed
    /// when it is dropped, and so is whatever it has started ([`Running`]).
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            // The folders belong to whoever runs the host or to gitcd: --root says whose they are trusted to be.
            .args(["-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null"])
            .args(arguments)
            .env_clear()
            .env("PATH", &self.path)
            .env("HOME", "/")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

/// A program and those that it has started. Dropping it kills them all.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a command that [`Program::command`] has prepared: it leads a process group of its own.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Kills it and waits until it is gone, so that it writes no file any more.
    pub async fn end(mut self) {
        self.kill_group();
        // It is killed; an error could only say that it has been waited for.
        let _ended = self.0.wait().await;
    }

    /// Lets it remove what it has not finished, and kills it if it takes long.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        let _late = tokio::time::timeout(MANNERS, self.0.wait()).await;
        self.end().await;
    }

    fn kill_group(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // As long as nobody has waited for the child, its number is not anybody else's.
        let group = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            // Fails only if they have all ended.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// The beginning of what a program writes to standard error; the rest is read and forgotten.
pub async fn complaint(mut stream: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = COMPLAINT_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// A folder for a variable that has several (`GIT_ALTERNATE_OBJECT_DIRECTORIES`): Git separates them by colons, and takes those as they are that are quoted.
pub fn quoted(path: &Path) -> OsString {
    let mut quoted = vec![b'"'];
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', byte]),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'"');
    OsString::from_vec(quoted)
}

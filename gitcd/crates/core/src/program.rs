//! The `git` program, isolated from this process's environment.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

/// Limit of the standard error that is kept.
const STDERR_BYTES: usize = 4 << 10;

/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(5);

/// This executable, if it is a guard of the programs that it starts.
static GUARD: OnceLock<PathBuf> = OnceLock::new();
/// Set for a guard: the process whose end it waits for.
const GUARDED_BY: &str = "GITCD_GUARDED_BY";

/// Makes the `git` programs of this process end with it, also if it is killed. They would otherwise continue without a reader,
/// for example in the middle of a push of which no process learns the result. To be called first by `main`, before there are threads.
///
/// `git` is then started through this executable, which asks Linux for a SIGKILL when its parent ends and becomes `git`. Returns
/// the exit code if this process is such a start, and `git` cannot be run.
pub fn guard() -> Option<i32> {
    let Some(parent) = std::env::var_os(GUARDED_BY) else {
        if let Ok(own) = std::env::current_exe() {
            let _known = GUARD.set(own);
        }
        return None;
    };
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have ended before the signal was asked for.
    let is_its = |pid: Pid| parent.to_str().is_some_and(|parent| parent == pid.as_raw_nonzero().to_string());
    if !rustix::process::getppid().is_some_and(is_its) {
        return Some(1);
    }
    let mut arguments = std::env::args_os().skip(1);
    let program = arguments.next()?;
    let error = std::process::Command::new(&program).args(arguments).env_remove(GUARDED_BY).exec();
    // The process that started this reads why.
    let _ = writeln!(io::stderr(), "cannot run {}: {error}", program.display());
    Some(127)
}

/// Prepares a program that ends with this process, if [`guard`] was called. The thread that starts it has to wait for it, or to
/// live as long: Linux takes its end for that of the parent.
pub fn guarded(program: &str) -> std::process::Command {
    let Some(own) = GUARD.get() else { return std::process::Command::new(program) };
    let mut command = std::process::Command::new(own);
    command.arg(program);
    command
}

/// Marks a command of [`guarded`], after its environment was set.
pub fn mark(command: &mut std::process::Command) {
    if GUARD.get().is_some() {
        command.env(GUARDED_BY, std::process::id().to_string());
    }
}

/// A `git` program that runs.
#[derive(Clone, Debug)]
pub struct Program {
    path: OsString,
}

impl Program {
    /// Checks that `git` can be run.
    ///
    /// # Errors
    /// `git --version` cannot be run, or fails.
    pub async fn find() -> io::Result<Self> {
        let program = Self { path: std::env::var_os("PATH").unwrap_or_default() };
        let output = program.command(&["--version"]).output().await?;
        let said = String::from_utf8_lossy(&output.stdout);
        tracing::debug!(version = said.trim(), "found git");
        if output.status.success() { Ok(program) } else { Err(io::Error::other(output.status.to_string())) }
    }

    /// Prepares `git ARGUMENTS`. Only the repository's own configuration applies; no hook, helper or shell runs. The process is
    /// killed when it is dropped; [`Running`] also kills its children.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.prepare(guarded("git"), arguments);
        mark(command.as_std_mut());
        command
    }

    /// Prepares a `git` that only reads a repository and writes to a pipe. If this process is killed, it exits at the end of its
    /// input or on SIGPIPE, so it needs no [`guard`], which takes some milliseconds.
    pub fn reading(&self, arguments: &[&str]) -> Command {
        self.prepare(std::process::Command::new("git"), arguments)
    }

    fn prepare(&self, mut command: std::process::Command, arguments: &[&str]) -> Command {
        command
            // Repositories belong to the user who runs the host or to gitcd: --root says which owner is trusted.
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
            .process_group(0);
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        command
    }
}

/// A program and its children. Dropping it kills them all.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a command that [`Program::command`] or [`Program::reading`] prepared, as the leader of its own process group.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Returns the process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Kills the process group and waits for the process, so that it no longer writes any file.
    pub async fn end(mut self) {
        self.kill_group();
        // The process was killed; the only possible error is that it was already reaped.
        let _ended = self.0.wait().await;
    }

    /// Sends SIGTERM for a clean exit, and kills the process group after five seconds.
    pub async fn stop(mut self) {
        self.signal(Signal::TERM);
        let _late = tokio::time::timeout(TERM_GRACE, self.0.wait()).await;
        self.end().await;
    }

    fn kill_group(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        // The process ID cannot be reused before the child is reaped.
        let group = self.0.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed()));
        if let Some(group) = group {
            // Fails only if all processes have exited.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// Returns the start of a program's standard error; the rest is read and discarded.
pub async fn stderr_excerpt(mut stream: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1024]);
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let room = STDERR_BYTES - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Quotes a folder for a colon-separated variable (`GIT_ALTERNATE_OBJECT_DIRECTORIES`), as Git parses it.
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

//! A folder with a control plane's home and fake programs, and registries of its own.
#![allow(dead_code, reason = "each test uses a part")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trishanku::plane::{Home, Identity};
use trishanku::status::{self, Health};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Sandbox {
    dir: TempDir,
}

impl Sandbox {
    /// A gitcd that runs `serve` instead of serving; the Kubernetes programs are never reached.
    pub(crate) fn with_gitcd(serve: &str) -> Self {
        let sandbox = Self { dir: tempfile::tempdir().expect("the temp folder is writable") };
        for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"] {
            sandbox.script(program, "exit 9");
        }
        sandbox.script("gitcd", &format!("case \"$1\" in init|prepare|health) exit 0;; esac\n{serve}"));
        sandbox
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("the folder is writable");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("the file is writable");
        path
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.path().join(name);
        std::fs::write(&path, text).expect("the folder is writable");
        path.display().to_string()
    }

    pub(crate) fn home(&self) -> Home {
        Home::at(&self.path().join("home"))
    }

    /// The command without an option that selects a control plane.
    pub(crate) fn plain(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trishanku"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("XDG_DATA_HOME", self.path().join("data"))
            .env("XDG_STATE_HOME", self.path().join("state"))
            .env("TRISHANKU_ASSETS", self.path())
            .env("TRISHANKU_GITCD", self.path().join("gitcd"))
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.plain();
        command.arg("--dir").arg(self.home().dir()).args(args);
        command
    }

    pub(crate) fn trishanku(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary was built")
    }

    /// Runs `up`, which must fail with nothing left running; returns its output.
    pub(crate) fn failing_up(&self, args: &[&str]) -> String {
        let output = self.trishanku(&[&["up", "--central"], args].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(status::read(&self.home()).expect("it is readable").health, Health::Stopped);
        printed(&output)
    }

    /// Starts `trishanku` in the foreground.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let child = self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Running(Some(child.expect("the binary was built")))
    }

    /// Waits until the file in the sandbox has this many lines, each a process id of a fake program; returns them.
    pub(crate) fn processes(&self, file: &str, count: usize) -> Vec<Identity> {
        let read = || std::fs::read_to_string(self.path().join(file)).unwrap_or_default();
        let text = until(&format!("{count} lines in {file}"), || {
            Some(read()).filter(|text| text.ends_with('\n') && text.lines().count() >= count)
        });
        let id = |line: &str| Identity::of(line.trim().parse().expect("a process id")).expect("/proc is readable");
        text.lines().filter_map(id).collect()
    }
}

/// Waits until there is a value.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(since.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `trishanku` in the foreground, which is killed on drop.
pub(crate) struct Running(Option<Child>);

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.0.as_ref().expect("it runs").id()
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.0.take().expect("it runs");
        child.kill().expect("it is a child of this process");
        child.wait().expect("it is a child of this process");
    }

    /// Waits until it exits; returns the code and what it printed.
    pub(crate) fn exit(&mut self) -> (Option<i32>, String) {
        let child = self.0.as_mut().expect("it runs");
        until("the exit of trishanku", || child.try_wait().expect("it is a child of this process"));
        let output = self.0.take().expect("it ran").wait_with_output().expect("the output is text");
        (output.status.code(), printed(&output))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _killed = child.kill();
            let _reaped = child.wait();
        }
    }
}

pub(crate) fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

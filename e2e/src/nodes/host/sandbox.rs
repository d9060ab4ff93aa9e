//! A node's namespaces: their processes, mounts and networks are invisible to the machine and end with them.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::Signal;

use super::init::{Answer, Belongings, Program, Request, WORD};
use crate::nodes::Inside;
use crate::nodes::kubectl::said;

/// Longer than the init process takes to clean up.
const CLOSE_WITHIN: Duration = Duration::from_secs(30);

/// The namespaces, closed on drop.
pub(super) struct Sandbox {
    /// `unshare`, whose child is the init process. If it exits, all processes are killed.
    outer: Child,
    line: Mutex<Line>,
}

struct Line {
    /// `None` once it is being closed.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Sandbox {
    /// Creates the namespaces. However this process ends, all their resources are removed.
    pub(super) fn open(belongings: &Belongings) -> anyhow::Result<Self> {
        let log = belongings.folder.join("sandbox.log");
        let own = std::env::current_exe().context("cannot locate this program")?;
        let mut outer = Command::new("unshare")
            .args(["--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"])
            .args(["--propagation", "private", "--"])
            .arg(own)
            .args([WORD, &serde_json::to_string(belongings)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .spawn()
            .context("cannot start unshare")?;
        let input = Some(outer.stdin.take().context("the process has no pipe")?);
        let output = BufReader::new(outer.stdout.take().context("the process has no pipe")?);
        let sandbox = Self { outer, line: Mutex::new(Line { input, output }) };
        let answer = sandbox.ask(&Request::Look { name: "anything".to_owned() });
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        answer.with_context(|| format!("cannot create namespaces: {}", printed.trim()))?;
        Ok(sandbox)
    }

    /// Starts a program that keeps running.
    pub(super) fn start(&self, program: Program) -> anyhow::Result<()> {
        self.done(&Request::Start(program))
    }

    /// Sends a signal to a started program.
    pub(super) fn signal(&self, name: &str, signal: Signal) -> anyhow::Result<()> {
        self.done(&Request::Signal { name: name.to_owned(), signal: signal.as_raw() })
    }

    /// How a program exited, or `None` if it is running.
    pub(super) fn ended(&self, name: &str) -> anyhow::Result<Option<String>> {
        match self.ask(&Request::Look { name: name.to_owned() })? {
            Answer::Done => Ok(None),
            Answer::Ended(how) => Ok(Some(how)),
            Answer::Failed(why) => bail!(why),
        }
    }

    /// A program in the network namespace, with the files of this process.
    pub(super) fn in_network(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.outer.id())).arg("--").arg(program);
        command
    }

    fn done(&self, request: &Request) -> anyhow::Result<()> {
        match self.ask(request)? {
            Answer::Done => Ok(()),
            Answer::Ended(how) => bail!("it exited {how}"),
            Answer::Failed(why) => bail!(why),
        }
    }

    fn ask(&self, request: &Request) -> anyhow::Result<Answer> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = serde_json::to_string(request)?;
        text.push('\n');
        line.input.as_mut().context("it is being closed")?.write_all(text.as_bytes())?;
        text.clear();
        ensure!(line.output.read_line(&mut text)? > 0, "the init process has exited");
        Ok(serde_json::from_str(&text)?)
    }
}

impl Inside for Sandbox {
    /// Runs in the mount and network namespaces.
    fn run(&self, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let process = self.outer.id();
        let mut command = Command::new("nsenter");
        command
            .args([format!("--net=/proc/{process}/ns/net"), format!("--mount=/proc/{process}/ns/mnt")])
            .arg("--")
            .arg(program)
            .args(arguments);
        said(&mut command, "")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.line.lock().unwrap_or_else(PoisonError::into_inner).input = None;
        let until = Instant::now() + CLOSE_WITHIN;
        while matches!(self.outer.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        // It has exited, or will not exit by itself.
        let _ended = self.outer.kill();
        let _reaped = self.outer.wait();
    }
}

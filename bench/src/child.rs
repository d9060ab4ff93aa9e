//! A child process that exits with this program.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};

const STOP_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// A running program whose output goes to a file; killed on drop.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    log: PathBuf,
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail only for a process that has already been reaped.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Child {
    /// Starts the program; its output goes to `log`.
    ///
    /// # Errors
    /// If the program or the log's folder is missing; the message names the program.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            // A process group of its own, so that Ctrl-C reaches only this program, which stops its servers itself.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Self { process, log: log.to_owned() })
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The exit status, if the process has exited.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }

    /// The end of its output.
    pub fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Stops it with SIGTERM, as a service manager would; returns the exit status.
    ///
    /// # Errors
    /// If it does not exit within 30 seconds; dropping it then kills it.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        rustix::process::kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let start = Instant::now();
        while start.elapsed() < STOP_LIMIT {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("it did not exit within {STOP_LIMIT:?} after SIGTERM")
    }
}

/// A loopback address whose port was free a moment ago.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

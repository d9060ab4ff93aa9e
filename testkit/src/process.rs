//! A server process on a loopback port: started, awaited until it is ready, and killed when dropped.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kube::{Client, Config};

use crate::error::StartError;
use crate::guard::Program;

/// Long enough for a busy machine.
pub(crate) const READY_WITHIN: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many ports to try. Another process may take a port between the choice and the start.
const PORTS: usize = 5;

/// What a server needs to start, and how to see that it is ready.
pub(crate) trait Server {
    /// Its name in errors, and of its log.
    const NAME: &'static str;
    /// Path that answers with 200 once it is ready.
    const READY: &'static str;

    /// Returns the folder of its log.
    fn folder(&self) -> &Path;

    /// Writes its files and returns its command line.
    fn command(&self, port: u16) -> io::Result<Command>;

    /// Returns the configuration of a client that asks whether it is ready.
    fn config(&self, port: u16) -> Config;
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    port: u16,
    _program: Program,
}

impl Process {
    /// Starts a server on `port`, or on a free one, and waits until it is ready.
    pub(crate) async fn start<S: Server>(server: &S, port: Option<u16>) -> Result<Self, StartError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let chosen = port.map_or_else(free_port, Ok).map_err(StartError::System)?;
            match Self::start_on(server, chosen).await {
                Err(StartError::Ended { log, .. }) if tries < PORTS && log.contains("address already in use") => {}
                result => return result,
            }
        }
    }

    async fn start_on<S: Server>(server: &S, port: u16) -> Result<Self, StartError> {
        let (log, ended) = (log(server), server.folder().join(format!("{}.ended", S::NAME)));
        match std::fs::remove_file(&ended) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(StartError::System(error)),
            _ => {}
        }
        let command = server.command(port).map_err(StartError::System)?;
        let program = Program::start(&command, &log, &ended).map_err(StartError::System)?;
        let client = Client::try_from(server.config(port)).map_err(|error| StartError::Client(Box::new(error)))?;
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let asked = http::Request::get(S::READY).body(Vec::new()).map(|request| client.request_text(request));
            let answer = asked.map_err(|error| StartError::System(io::Error::other(error)))?.await;
            if answer.is_ok() {
                return Ok(Self { port, _program: program });
            }
            if ended.exists() {
                return Err(StartError::Ended { program: S::NAME, log: last_lines(&log) });
            }
            if Instant::now() > deadline {
                return Err(StartError::NotReady { program: S::NAME, within: READY_WITHIN, log: last_lines(&log) });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

fn log<S: Server>(server: &S) -> PathBuf {
    server.folder().join(format!("{}.log", S::NAME))
}

pub(crate) fn last_lines(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Returns a loopback port that was free just now, outside of the range for outgoing connections.
fn free_port() -> io::Result<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(32_768_u16);
    if first <= 12_000 {
        return TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr().map(|address| address.port());
    }
    // Random, so that concurrent callers choose different ports.
    let span = first - 11_000;
    let random = |_| 11_000 + (RandomState::new().hash_one(()) % u64::from(span)) as u16;
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    (0..200).map(random).find(free).ok_or_else(|| io::Error::other("no free loopback port"))
}

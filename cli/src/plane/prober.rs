//! Probes of components.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::components::{Invocation, Probe, Trust};
use super::http::{Endpoint, TrustError};

/// Time limit of one probe.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much output of a probe command a message shows.
const MAX_WORDS: usize = 300;

/// A probe, prepared to be run repeatedly.
#[derive(Clone, Debug)]
pub(crate) enum Prober {
    Http {
        endpoint: Box<Endpoint>,
        path: String,
    },
    /// Certificates may be renewed while it runs, so they are read each time.
    Store {
        port: u16,
        keys: PathBuf,
        path: String,
    },
    Run(Invocation),
    Connect(u16),
    Running(Duration),
}

impl Prober {
    pub(crate) fn of(probe: &Probe) -> Result<Self, TrustError> {
        Ok(match probe {
            Probe::Http { port, path, trust: Trust::Store(keys) } => {
                Self::Store { port: *port, keys: keys.clone(), path: path.clone() }
            }
            Probe::Http { port, path, trust } => {
                let endpoint = match trust {
                    Trust::Store(keys) => Endpoint::store(*port, keys)?,
                    Trust::Plain => Endpoint::plain(*port),
                    Trust::Authority(ca) => Endpoint::tls(*port, ca)?,
                    Trust::Anybody => Endpoint::of_anybody(*port),
                };
                Self::Http { endpoint: Box::new(endpoint), path: path.clone() }
            }
            Probe::Run(invocation) => Self::Run(invocation.clone()),
            Probe::Connect(port) => Self::Connect(*port),
            Probe::Running(span) => Self::Running(*span),
        })
    }

    /// The pause between two probes of a component that has run for this long: longer for probes that start a process,
    /// and after 20 s, when it may be waiting for its turn.
    pub(crate) fn pause(&self, runs: Duration) -> Duration {
        let waits = runs > Duration::from_secs(20);
        Duration::from_millis(if waits || matches!(self, Self::Run(_)) { 200 } else { 50 })
    }

    /// Probes a component that has run since then. A probe command joins its process group, and is killed if the future
    /// is dropped.
    ///
    /// # Errors
    /// The reason for failure, as a message.
    pub(crate) async fn probe(&self, since: Instant, group: Option<Pid>) -> Result<(), String> {
        match self {
            Self::Http { endpoint, path } => endpoint.ask(path).await.map(drop).map_err(|error| error.to_string()),
            Self::Store { port, keys, path } => {
                let endpoint = Endpoint::store(*port, keys).map_err(|error| error.to_string())?;
                endpoint.ask(path).await.map(drop).map_err(|error| error.to_string())
            }
            Self::Run(invocation) => run(invocation, group).await,
            Self::Connect(port) => match tokio::time::timeout(PATIENCE, TcpStream::connect(("127.0.0.1", *port))).await
            {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(format!("no answer on port {port}: {error}")),
                Err(_) => Err(format!("no answer on port {port} within {PATIENCE:?}")),
            },
            Self::Running(span) => match span.checked_sub(since.elapsed()) {
                None | Some(Duration::ZERO) => Ok(()),
                Some(left) => Err(format!("must keep running for {}ms more", left.as_millis())),
            },
        }
    }
}

async fn run(invocation: &Invocation, group: Option<Pid>) -> Result<(), String> {
    let mut command = command(invocation);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(group) = group {
        command.process_group(group.as_raw_nonzero().get());
    }
    let name = invocation.program.file_name().unwrap_or_default().display().to_string();
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(output) => output.map_err(|error| format!("cannot start {name}: {error}"))?,
        Err(_) => return Err(format!("{name} did not exit within {PATIENCE:?}")),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said: String = String::from_utf8_lossy(&said).trim().chars().take(MAX_WORDS).collect();
    Err(if said.is_empty() { format!("{name} {}", output.status) } else { said })
}

/// The command of an invocation; dropping the child kills it.
pub(crate) fn command(invocation: &Invocation) -> Command {
    let mut command = Command::new(&invocation.program);
    command.args(&invocation.args).stdin(Stdio::null()).kill_on_drop(true);
    if let Some(environment) = &invocation.environment {
        command.env_clear().envs(environment);
    } else {
        // It names the flags of another gitcd, such as the ports of the one whose past this is.
        command.env_remove("GITCD_CONFIG");
    }
    if let Some(folder) = &invocation.folder {
        command.current_dir(folder);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Prober {
        let args = ["-c".into(), text.into()].to_vec();
        Prober::Run(Invocation { program: "/bin/sh".into(), args, ..Invocation::default() })
    }

    #[tokio::test]
    async fn a_probe_returns_why_it_failed() {
        let now = Instant::now();
        assert_eq!(script("exit 0").probe(now, None).await, Ok(()));
        assert_eq!(script("echo not yet; exit 1").probe(now, None).await, Err("not yet".to_owned()));
        assert!(script("exit 3").probe(now, None).await.unwrap_err().contains("status: 3"));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(Prober::Connect(port).probe(now, None).await, Ok(()));
        drop(listener);
        // A bound port without a listener: connections are refused, and no other process can use the port.
        let bound = tokio::net::TcpSocket::new_v4().unwrap();
        bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = bound.local_addr().unwrap().port();
        assert!(Prober::Connect(port).probe(now, None).await.unwrap_err().contains(&port.to_string()));
        assert_eq!(Prober::Running(Duration::ZERO).probe(now, None).await, Ok(()));
        assert!(Prober::Running(Duration::from_mins(1)).probe(now, None).await.is_err());
    }
}

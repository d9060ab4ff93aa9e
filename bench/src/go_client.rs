//! The Go client: another program (`bench/go`), which uses the library that kube-apiserver uses.
//!
//! It gets the definition of a workload by flags when it starts, and runs for all turns of the workload. A turn is a line on its
//! standard input; its result is a line on its standard output.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::client::Client;
use crate::compact::Compactor;
use crate::load::Tally;
use crate::process;
use crate::workload::Spec;

/// The program's name, next to this program.
const NAME: &str = "gitcd-bench-go";
/// Limit for the result of a turn, beyond its length: longer than the program waits for the last events of watches.
const RESULT_LIMIT: Duration = Duration::from_mins(1);

/// The program.
#[derive(Clone, Debug)]
pub(crate) struct GoProgram(PathBuf);

impl GoProgram {
    /// Uses the given program, or the one next to this program.
    ///
    /// # Errors
    /// If there is none; the message says how to build it.
    pub(crate) fn find(given: Option<&Path>) -> Result<Self> {
        let path = match given {
            Some(given) => given.to_owned(),
            None => std::env::current_exe().context("cannot locate this program")?.with_file_name(NAME),
        };
        if !path.is_file() {
            bail!(
                "no Go client at {}: build it with `make bench-client` (requires Go), give --go-client PATH, or measure with \
                 --client rust",
                path.display()
            );
        }
        Ok(Self(path))
    }

    /// Starts a client of the server at this URL.
    pub(crate) fn start(&self, url: &str, spec: &Spec, connections: usize, threads: usize) -> Result<GoClient> {
        let parameters = serde_json::to_string(&spec.parameters())?;
        let mut process = Command::new(&self.0)
            .arg(format!("--endpoint={url}"))
            .arg(format!("--parameters={parameters}"))
            .arg(format!("--seed={}", rand::random::<u64>()))
            .arg(format!("--connections={connections}"))
            .arg(format!("--threads={threads}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the Go client {}", self.0.display()))?;
        let requests = process.stdin.take().context("the Go client has no standard input")?;
        let answers = process.stdout.take().context("the Go client has no standard output")?;
        Ok(GoClient { process, requests, answers: BufReader::new(answers).lines() })
    }
}

/// A turn, as `bench/go/messages.go` reads it.
#[derive(Debug, Serialize)]
struct Turn {
    nanoseconds: u64,
    next_new: u64,
    mark: i64,
    every: i64,
}

/// A line that the program prints.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Message {
    /// The server has reached the revision at which it has to be compacted.
    Reached(i64),
    /// The turn has ended.
    Done(Outcome),
    /// An operation has failed, and the program exits.
    Failed(String),
}

/// The result of a turn.
#[derive(Debug, Deserialize)]
struct Outcome {
    operations: u64,
    conflicts: u64,
    nanoseconds: u64,
    next_new: u64,
    /// Times of operations in nanoseconds, and how many operations took that long.
    latency: Vec<(u64, u64)>,
}

impl From<&Outcome> for Tally {
    fn from(outcome: &Outcome) -> Self {
        let mut tally = Self::new();
        tally.operations = outcome.operations;
        tally.conflicts = outcome.conflicts;
        tally.elapsed = Duration::from_nanos(outcome.nanoseconds);
        for (nanoseconds, count) in &outcome.latency {
            tally.latency.saturating_record_n(*nanoseconds, *count);
        }
        tally
    }
}

/// The running program; killed on drop.
#[derive(Debug)]
pub(crate) struct GoClient {
    process: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl GoClient {
    /// Puts the server under load for about `length`. Creates number their keys from `next_new`. Compactions go through the Rust
    /// client, as in its own turns.
    ///
    /// # Errors
    /// If an operation fails or the program exits; it has to be started again then.
    pub(crate) async fn turn(
        &mut self,
        length: Duration,
        next_new: &AtomicU64,
        compactor: &Compactor,
        client: &Client,
    ) -> Result<Tally> {
        let (mark, every) = compactor.due();
        let nanoseconds = u64::try_from(length.as_nanos())?;
        let turn = Turn { nanoseconds, next_new: next_new.load(Ordering::Relaxed), mark, every };
        let mut line = serde_json::to_vec(&turn)?;
        line.push(b'\n');
        // If the program has exited, its last line says why.
        let sent = self.requests.write_all(&line).await;
        let result = tokio::time::timeout(length + RESULT_LIMIT, self.result(compactor, client)).await;
        let outcome =
            result.with_context(|| format!("the Go client has no result {RESULT_LIMIT:?} after its turn"))??;
        sent.context("the Go client does not read its standard input")?;
        next_new.store(outcome.next_new, Ordering::Relaxed);
        Ok(Tally::from(&outcome))
    }

    async fn result(&mut self, compactor: &Compactor, client: &Client) -> Result<Outcome> {
        loop {
            let line = self.answers.next_line().await?.context("the Go client exited without a result")?;
            match serde_json::from_str(&line).with_context(|| format!("the Go client printed {line:?}"))? {
                Message::Reached(revision) => compactor.observe(client, revision).await?,
                Message::Done(outcome) => return Ok(outcome),
                Message::Failed(error) => bail!("the Go client failed: {error}"),
            }
        }
    }

    /// Processor time of the program.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        process::cpu(self.process.id().context("the Go client has exited")?)
    }
}

#[cfg(test)]
mod tests;

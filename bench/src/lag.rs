//! The lag of a server's commits behind its acknowledged writes, from its metrics.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Twice a second: a slice of load takes little more than a second.
const INTERVAL: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The lag at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Seconds of load of the workload before this sample.
    pub(crate) at: f64,
    /// Age of the oldest uncommitted revision, in seconds.
    pub(crate) seconds: f64,
    /// Number of uncommitted revisions.
    pub(crate) revisions: f64,
}

/// Fetches one sample.
///
/// # Errors
/// If the server does not respond or lacks the metrics.
pub(crate) async fn sample(address: SocketAddr) -> Result<Sample> {
    parse(&figures(address).await?)
}

/// Fetches `/metrics`.
///
/// # Errors
/// If the server does not respond.
pub(crate) async fn figures(address: SocketAddr) -> Result<String> {
    tokio::time::timeout(TIMEOUT, scrape(address)).await.context("/metrics did not respond in time")?
}

/// Takes samples in the background until it is stopped.
pub(crate) struct Sampler {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Vec<Sample>>>,
}

impl Sampler {
    /// Starts sampling; `offset` is the workload's earlier load.
    pub(crate) fn start(address: SocketAddr, offset: Duration) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let start = Instant::now();
        let task = tokio::spawn(async move {
            let mut samples = Vec::new();
            let mut ticks = tokio::time::interval(INTERVAL);
            let mut last = false;
            while !last {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut stopped => last = true,
                }
                let at = (offset + start.elapsed()).as_secs_f64();
                let found = sample(address).await?;
                samples.push(Sample { at, ..found });
            }
            Ok(samples)
        });
        Self { stop, task }
    }

    /// Takes a last sample and returns all samples.
    ///
    /// # Errors
    /// If one of them failed, after which none were taken.
    pub(crate) async fn stop(self) -> Result<Vec<Sample>> {
        // The receiver is gone only if the task has failed, which its result reports.
        let _ = self.stop.send(());
        self.task.await.context("the lag sampler panicked")?
    }
}

fn parse(metrics: &str) -> Result<Sample> {
    Ok(Sample {
        at: 0.0,
        seconds: value(metrics, "gitcd_commit_lag_seconds")?,
        revisions: value(metrics, "gitcd_commit_lag_revisions")?,
    })
}

/// Returns the greatest value of a metric over all its label sets.
pub(crate) fn value(metrics: &str, name: &str) -> Result<f64> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with(['{', ' ']))
        .filter_map(|rest| rest.rsplit_once(' ')?.1.parse().ok())
        .max_by(f64::total_cmp)
        .with_context(|| format!("the metrics have no {name}"))
}

/// Fetches the text of `/metrics` on the client port.
async fn scrape(address: SocketAddr) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    // HTTP/1.0 has neither chunks nor keep-alive: the body ends with the stream.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    let answer = String::from_utf8(answer)?;
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        bail!("/metrics: not an HTTP response");
    };
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200"), "/metrics failed with {status:?}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_is_read_with_and_without_labels_and_the_worst_branch_counts() {
        let text = "# TYPE gitcd_commit_lag_seconds gauge\n\
                    gitcd_commit_lag_seconds_sum 99\n\
                    gitcd_commit_lag_seconds{branch=\"a b\"} 0.25\n\
                    gitcd_commit_lag_seconds{branch=\"c\"} 1.5\n\
                    gitcd_commit_lag_revisions 12\n";
        let sample = parse(text).unwrap();
        assert!((sample.seconds - 1.5).abs() < 1e-9);
        assert!((sample.revisions - 12.0).abs() < 1e-9);
    }

    #[test]
    fn a_server_without_the_metrics_is_an_error_that_names_them() {
        let error = parse("up 1\n").unwrap_err().to_string();
        assert!(error.contains("gitcd_commit_lag_seconds"), "{error}");
    }
}

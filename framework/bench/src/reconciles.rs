//! The reconciles of a contestant, by its own metrics.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(5);

/// Reconciles since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconciles {
    /// Reconciles that succeeded.
    pub done: u64,
    /// Reconciles that failed.
    pub failed: u64,
}

impl Reconciles {
    /// Reads the metrics at this address.
    ///
    /// # Errors
    /// There is no response, or the response lacks the metric.
    pub(crate) async fn of(address: SocketAddr) -> Result<Self> {
        let page = tokio::time::timeout(PATIENCE, page(address)).await??;
        Self::read(&page).context("the response lacks the metric")
    }

    /// `None` if the page lacks the metric.
    fn read(page: &str) -> Option<Self> {
        let lines = page.lines().filter_map(|line| line.strip_prefix("controller_runtime_reconcile_total{"));
        let counts: Vec<_> = lines.filter_map(|line| line.rsplit_once("} ")).collect();
        let sum = |failed: bool| {
            let wanted = counts.iter().filter(|(labels, _)| labels.contains("result=\"error\"") == failed);
            wanted.filter_map(|(_, count)| count.trim().parse::<f64>().ok()).sum::<f64>() as u64
        };
        (!counts.is_empty()).then(|| Self { done: sum(false), failed: sum(true) })
    }
}

/// Uses HTTP/1.0: the response has no chunks, and ends with the connection.
async fn page(address: SocketAddr) -> Result<String> {
    let mut connection = TcpStream::connect(address).await?;
    connection.write_all(b"GET /metrics HTTP/1.0\r\nAccept: text/plain\r\n\r\n").await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the response has no head")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "the response is {status}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_are_added_up_and_failures_are_apart() {
        let page = "\
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller=\"pair\",result=\"success\"} 1.5e+03
controller_runtime_reconcile_total{controller=\"pair\",result=\"error\"} 2
controller_runtime_reconcile_total{controller=\"pair\",result=\"requeue_after\"} 3
controller_runtime_reconcile_errors_total{controller=\"pair\"} 2
";
        assert_eq!(Reconciles::read(page), Some(Reconciles { done: 1_503, failed: 2 }));
        assert_eq!(Reconciles::read("up 1\n"), None);
    }
}

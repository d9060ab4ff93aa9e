//! What a store reports of itself.

use std::path::Path;

use bytes::Bytes;
use gitcd::status::{Branch, Status};
use serde::Serialize;

use crate::plane::http::Endpoint;

/// Metrics of the store. Those that a store does not publish are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StoreFigures {
    /// The current revision.
    pub revision: Option<u64>,
    /// The highest revision that is committed to Git.
    pub committed_revision: Option<u64>,
    /// The age of the oldest write that is not yet committed to Git.
    pub commit_lag_seconds: Option<f64>,
    /// The size of the store.
    pub size_bytes: Option<u64>,
    /// The size at which it refuses writes; 0 is no limit.
    pub quota_bytes: Option<u64>,
}

/// What a store reports at `/status` and `/metrics`.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The status of its branch (docs/design/status.md), or why it is unknown.
    pub branch: Result<Branch, String>,
    /// Its metrics; `None` if it does not respond.
    pub figures: Option<StoreFigures>,
}

impl StoreStatus {
    /// Asks the store of this machine at a port. Takes at most five seconds.
    pub(super) async fn ask(port: u16, keys: &Path) -> Self {
        match Endpoint::store(port, keys) {
            Ok(endpoint) => Self::of(&endpoint).await,
            Err(error) => Self { branch: Err(error.to_string()), figures: None },
        }
    }

    async fn of(endpoint: &Endpoint) -> Self {
        let (status, metrics) = tokio::join!(endpoint.ask("/status"), endpoint.ask("/metrics"));
        Self::read(status.map_err(|error| error.to_string()), metrics.ok())
    }

    /// Reads the responses to requests for `/status` and `/metrics`. Instead of the former, there may be an error.
    pub fn read(status: Result<Bytes, String>, metrics: Option<Bytes>) -> Self {
        let branch = status.and_then(|text| parse(&text));
        let figures = metrics.map(|text| StoreFigures::parse(&String::from_utf8_lossy(&text)));
        Self { branch, figures }
    }
}

fn parse(text: &[u8]) -> Result<Branch, String> {
    let status: Status =
        serde_json::from_slice(text).map_err(|error| format!("cannot parse gitcd's status: {error}"))?;
    status.branches.into_iter().next().ok_or_else(|| "gitcd serves no branch".to_owned())
}

impl StoreFigures {
    /// Parses the metrics from Prometheus text.
    fn parse(text: &str) -> Self {
        let value = |name: &str| -> Option<f64> {
            text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
                let rest = line.strip_prefix(name)?;
                // The name must end here, at its labels or at its value.
                let is_whole = rest.starts_with(['{', ' ']);
                let (_, value) = rest.rsplit_once(' ').filter(|_| is_whole)?;
                value.parse().ok()
            })
        };
        let whole = |name: &str| value(name).map(|number| number as u64);
        Self {
            revision: whole("gitcd_revision").or_else(|| whole("etcd_debugging_mvcc_current_revision")),
            committed_revision: whole("gitcd_committed_revision"),
            commit_lag_seconds: value("gitcd_commit_lag_seconds"),
            size_bytes: whole("etcd_mvcc_db_total_size_in_bytes"),
            quota_bytes: whole("etcd_server_quota_backend_bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_with_and_without_labels() {
        let text = "# TYPE gitcd_revision gauge\ngitcd_revision{branch=\"default\"} 42\n\
                    gitcd_revision_other 7\ngitcd_commit_lag_seconds 0.25\netcd_mvcc_db_total_size_in_bytes 4096\n";
        let figures = StoreFigures::parse(text);
        assert_eq!(figures.revision, Some(42));
        assert_eq!(figures.commit_lag_seconds, Some(0.25));
        assert_eq!(figures.committed_revision, None);
        assert_eq!((figures.size_bytes, figures.quota_bytes), (Some(4096), None));
    }

    #[test]
    fn etcd_has_a_revision_and_no_lag() {
        let figures = StoreFigures::parse("etcd_debugging_mvcc_current_revision 1.5e+03\n");
        assert_eq!(figures.revision, Some(1500));
        assert_eq!(figures.commit_lag_seconds, None);
    }

    #[test]
    fn an_answer_that_is_no_status_is_an_error() {
        for text in ["", "{}", r#"{"gitcd":"1","time":1,"branches":[]}"#] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}

//! Metrics of the remotes, one sample for each.

use std::fmt::Error;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::figures::Out;
use crate::status::{Remote, Reporter};

/// Name and help of a metric, and its value for a remote, if any.
type Figure = (&'static str, &'static str, fn(&Remote) -> Option<f64>);

const GAUGES: &[Figure] = &[
    (
        "gitcd_remote_lag_commits",
        "Commits of the remote, as last seen, that are not in the branch; counted up to 1,000",
        |remote| remote.lag_commits.map(|commits| commits as f64),
    ),
    ("gitcd_remote_lag_seconds", "Age of the oldest of these commits", |remote| {
        remote.lag_seconds.map(|seconds| seconds as f64)
    }),
    ("gitcd_remote_rejected_files", "Files of the remote that were rejected", |remote| {
        Some(remote.known.rejected.len() as f64)
    }),
    ("gitcd_remote_failures", "Consecutive failed attempts to pull or push", |remote| {
        Some(remote.known.failures as f64)
    }),
    (
        "gitcd_remote_last_success_timestamp_seconds",
        "Unix time of the last successful exchange with the remote",
        |remote| remote.known.synced_at.map(|at| at as f64),
    ),
    ("gitcd_remote_pull_seconds", "Duration of the last pull, including its fetch, merges and push", |remote| {
        Some(remote.known.pull_seconds)
    }),
];

/// Counters; `_total` is added to their names.
const COUNTERS: &[Figure] = &[
    ("gitcd_remote_merges", "Merges of the remote's commits", |remote| Some(remote.known.merges as f64)),
    ("gitcd_remote_merge_seconds", "Duration of these merges, from the fetched commit to the merge commit", |remote| {
        Some(remote.known.merge_seconds)
    }),
    ("gitcd_remote_pulls", "Successful pulls", |remote| Some(remote.known.pulls as f64)),
    ("gitcd_remote_conflicts", "Keys and fields that both sides had changed", |remote| {
        Some(remote.known.conflicts as f64)
    }),
    ("gitcd_remote_fetched_bytes", "Bytes of objects fetched", |remote| Some(remote.known.fetched_bytes as f64)),
    ("gitcd_remote_pushed_bytes", "Bytes of objects pushed", |remote| Some(remote.known.pushed_bytes as f64)),
];

pub(super) fn encode(reporter: &Reporter, out: &mut Out) -> Result<(), Error> {
    let help = "Rejected files in external commits";
    out.gauge("gitcd_rejected_files", help, reporter.rejected() as f64)?;
    let (merges, conflicts) = reporter.external();
    let help = "Merges of external commits, pushed to the branch or made on it";
    out.counter("gitcd_external_merges", help, merges as f64)?;
    let help = "Keys and fields that both an external commit and the branch had changed";
    out.counter("gitcd_external_conflicts", help, conflicts as f64)?;
    let remotes = reporter.remotes();
    let gauge = |value: f64, encoder: MetricEncoder| ConstGauge::new(value).encode(encoder);
    let counter = |value: f64, encoder: MetricEncoder| ConstCounter::new(value).encode(encoder);
    GAUGES.iter().try_for_each(|figure| each(out, figure, &remotes, MetricType::Gauge, gauge))?;
    COUNTERS.iter().try_for_each(|figure| each(out, figure, &remotes, MetricType::Counter, counter))
}

fn each(
    out: &mut Out,
    (name, help, value): &Figure,
    remotes: &[Remote],
    kind: MetricType,
    encode: impl Fn(f64, MetricEncoder) -> Result<(), Error>,
) -> Result<(), Error> {
    let figures: Vec<_> = remotes.iter().filter_map(|remote| Some((remote, value(remote)?))).collect();
    if figures.is_empty() {
        return Ok(());
    }
    let mut encoder = out.encoder.encode_descriptor(name, help, None, kind)?;
    for (remote, value) in figures {
        encode(value, encoder.encode_family(&[("remote", remote.name.as_str())])?)?;
    }
    Ok(())
}

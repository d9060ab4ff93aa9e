//! Figures for Prometheus: gitcd's own and those of etcd that dashboards and alerts use.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::committer;
use crate::store::Store;

/// What the figures of a branch are taken from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The branch's name.
    pub name: String,
    /// Its store.
    pub store: Arc<Store>,
    /// Its committer.
    pub committer: Arc<committer::Counters>,
}

/// The figures in Prometheus' text format (version 0.0.4).
pub fn text(source: &Source) -> String {
    let mut out = String::with_capacity(4096);
    let store = &source.store;
    let (keys, log) = store.sizes();
    let revision = store.revision();
    let committed = store.committed_revision();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let counters = &store.counters;
    let poisoned = store.refused().is_some();
    let commits = &source.committer;
    let mut figure = |name: &str, kind: &str, help: &str, value: f64| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
    };
    figure("gitcd_revision", "gauge", "Newest durable revision.", revision.get() as f64);
    figure("gitcd_committed_revision", "gauge", "Newest revision that is in Git.", committed.get() as f64);
    figure(
        "gitcd_commit_lag_revisions",
        "gauge",
        "Durable revisions that are not in Git yet.",
        revision.since(committed) as f64,
    );
    figure(
        "gitcd_commit_lag_seconds",
        "gauge",
        "Age of the oldest durable revision that is not in Git yet.",
        committer::lag(store).as_secs_f64(),
    );
    figure(
        "gitcd_compact_revision",
        "gauge",
        "History below this revision is dropped.",
        store.compacted().get() as f64,
    );
    figure("gitcd_keys", "gauge", "Keys in the index, deleted ones that history still knows included.", keys as f64);
    figure("gitcd_log_entries", "gauge", "Writes that watches can still be resumed from.", log as f64);
    figure("gitcd_watchers", "gauge", "Open watches.", store.hub().watchers() as f64);
    figure("gitcd_leases", "gauge", "Granted leases.", store.leases().len() as f64);
    figure("gitcd_old_value_bytes", "gauge", "Superseded values in memory.", load(&counters.old_value_bytes));
    figure("gitcd_journal_bytes", "gauge", "Size of the journal's segments.", store.segments().bytes() as f64);
    figure(
        "gitcd_journal_written_bytes_total",
        "counter",
        "Bytes appended to the journal.",
        load(&counters.journal_bytes),
    );
    figure("gitcd_journal_fsyncs_total", "counter", "Fsyncs of the journal.", load(&counters.fsyncs));
    figure(
        "gitcd_journal_fsync_seconds_total",
        "counter",
        "Time spent in writing and syncing the journal.",
        load(&counters.fsync_nanos) / 1e9,
    );
    figure("gitcd_compactions_total", "counter", "Compactions.", load(&counters.compactions));
    figure("gitcd_commits_total", "counter", "Data commits made.", load(&commits.commits));
    figure("gitcd_committed_revisions_total", "counter", "Revisions in these commits.", load(&commits.revisions));
    figure("gitcd_packs_total", "counter", "Packs written.", load(&commits.packs));
    figure("gitcd_pack_bytes_total", "counter", "Bytes in these packs.", load(&commits.pack_bytes));
    figure("gitcd_commit_failures_total", "counter", "Failed attempts to commit.", load(&commits.failures));
    figure("gitcd_writes_refused", "gauge", "1 while writes are refused.", f64::from(u8::from(poisoned)));
    figure("etcd_server_has_leader", "gauge", "Whether or not a leader exists. 1 is existence, 0 is not.", 1.0);
    figure("etcd_server_is_leader", "gauge", "Whether or not this member is a leader. 1 if is, 0 otherwise.", 1.0);
    figure("etcd_debugging_mvcc_current_revision", "gauge", "The current revision of store.", revision.get() as f64);
    figure(
        "etcd_debugging_mvcc_compact_revision",
        "gauge",
        "The revision of the last compaction in store.",
        store.compacted().get() as f64,
    );
    figure("etcd_debugging_mvcc_keys_total", "gauge", "Total number of keys.", keys as f64);
    figure("etcd_debugging_mvcc_watcher_total", "gauge", "Total number of watchers.", store.hub().watchers() as f64);
    out
}

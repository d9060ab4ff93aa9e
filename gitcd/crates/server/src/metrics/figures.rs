//! The metrics that are collected at every scrape.

use std::fmt::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use gitcd_engine::audit::Counters;
use gitcd_engine::committer;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;

use super::process::Process;
use super::{Source, audit, history, remotes, tasks};
use crate::member::{CLUSTER_VERSION, ETCD_VERSION};

/// A watcher is slow if it is this many revisions behind.
const SLOW_REVISIONS: usize = 1000;

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder) -> Result<(), Error> {
        let mut out = Out { encoder };
        // Visits every stream, so only once a scrape.
        let slow = self.store.hub().slow(self.store.revision(), SLOW_REVISIONS);
        self.own(&mut out, slow)?;
        remotes::encode(&self.status, &mut out)?;
        let none = Counters::default();
        audit::encode(self.audit.as_ref().map_or(&none, |events| events.counters()), &mut out)?;
        history::encode(&self.history, &mut out)?;
        tasks::encode(self.status.supervisor(), &mut out)?;
        self.etcd(&mut out, slow)?;
        self.more_of_etcd(&mut out)?;
        process(&mut out)
    }
}

/// Writes metrics, one after the other.
pub(super) struct Out<'a> {
    pub(super) encoder: DescriptorEncoder<'a>,
}

impl Out<'_> {
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    }

    /// Writes a counter; `_total` is added to its name.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: f64) -> Result<(), Error> {
        let counter = ConstCounter::new(value);
        counter.encode(self.encoder.encode_descriptor(name, help, None, counter.metric_type())?)
    }

    fn labelled(&mut self, name: &str, help: &str, label: (&'static str, String)) -> Result<(), Error> {
        let gauge = ConstGauge::new(1.0);
        let mut encoder = self.encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(encoder.encode_family(&[label])?)
    }
}

fn load(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

impl Source {
    fn own(&self, out: &mut Out, slow: usize) -> Result<(), Error> {
        let (store, commits) = (&self.store, &self.committer);
        let counters = &store.counters;
        let (keys, log) = store.sizes();
        let (revision, committed) = (store.revision(), store.committed_revision());
        let build = Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]);
        let build_help = "The version of gitcd";
        build.encode(out.encoder.encode_descriptor("gitcd_build", build_help, None, build.metric_type())?)?;
        out.gauge("gitcd_revision", "Newest durable revision", revision.get() as f64)?;
        out.gauge("gitcd_committed_revision", "Newest revision that is in Git", committed.get() as f64)?;
        let behind = revision.since(committed) as f64;
        out.gauge("gitcd_commit_lag_revisions", "Durable revisions that are not in Git yet", behind)?;
        let lag = committer::lag(store).as_secs_f64();
        out.gauge("gitcd_commit_lag_seconds", "Age of the oldest durable revision that is not in Git yet", lag)?;
        let compacted = store.compacted().get() as f64;
        out.gauge("gitcd_compact_revision", "History below this revision is dropped", compacted)?;
        out.gauge("gitcd_keys", "Keys in the index, including deleted ones still in the history", keys as f64)?;
        out.gauge("gitcd_log_entries", "Writes in the log, from which watches can resume", log as f64)?;
        out.gauge("gitcd_watchers", "Open watches", store.hub().watchers() as f64)?;
        let help = "Open watches that are 1,000 revisions or more behind";
        out.gauge("gitcd_slow_watchers", help, slow as f64)?;
        out.gauge("gitcd_leases", "Granted leases", store.leases().len() as f64)?;
        out.gauge("gitcd_old_value_bytes", "Superseded values in memory", load(&counters.old_value_bytes))?;
        out.gauge("gitcd_journal_bytes", "Size of the journal's segments", store.segments().bytes() as f64)?;
        let help = "Bytes appended to the journal";
        out.counter("gitcd_journal_written_bytes", help, load(&counters.journal_bytes))?;
        out.counter("gitcd_compactions", "Compactions", load(&counters.compactions))?;
        out.counter("gitcd_commits", "Data commits made", load(&commits.commits))?;
        out.counter("gitcd_committed_revisions", "Revisions in these commits", load(&commits.revisions))?;
        out.counter("gitcd_packs", "Packs written", load(&commits.packs))?;
        out.counter("gitcd_pack_bytes", "Bytes in these packs", load(&commits.pack_bytes))?;
        out.counter("gitcd_commit_failures", "Failed attempts to commit", load(&commits.failures))?;
        let (packs, bytes) = self.packs();
        out.gauge("gitcd_pack_files", "Packs in the repository", packs)?;
        out.gauge("gitcd_pack_files_bytes", "Size of the packs in the repository and their indices", bytes)?;
        let upkeep = &self.maintenance;
        let pruned = load(&upkeep.pruned);
        out.counter("gitcd_pruned_objects", "Unreachable objects pruned", pruned)?;
        out.counter("gitcd_pack_joins", "Background repacks", load(&upkeep.joins))?;
        out.counter("gitcd_pack_join_failures", "Failed background repacks", load(&upkeep.failures))?;
        let help = "Total duration of background repacks, which run at low priority";
        out.counter("gitcd_pack_join_seconds", help, load(&upkeep.milliseconds) / 1000.0)?;
        let refused = f64::from(u8::from(store.unavailable().is_some()));
        out.gauge("gitcd_writes_refused", "1 while writes are refused", refused)?;
        let Some(lease) = self.status.lease() else { return Ok(()) };
        out.gauge(
            "gitcd_writer_epoch",
            "Number of times that the writer lease was acquired, including this one",
            lease.epoch as f64,
        )?;
        let help = "Time until writes are no longer acknowledged unless the lease is renewed";
        out.gauge("gitcd_writer_lease_remaining_seconds", help, lease.remaining_seconds)
    }

    fn packs(&self) -> (f64, f64) {
        let entries = std::fs::read_dir(&self.packs).into_iter().flatten().flatten();
        entries.fold((0.0, 0.0), |(packs, bytes), entry| {
            let is_pack = entry.path().extension().is_some_and(|extension| extension == "pack");
            let length = entry.metadata().map_or(0, |meta| meta.len());
            (packs + f64::from(u8::from(is_pack)), bytes + length as f64)
        })
    }

    fn etcd(&self, out: &mut Out, slow: usize) -> Result<(), Error> {
        let store = &self.store;
        let counters = &store.counters;
        let revision = store.revision().get() as f64;
        let leads = f64::from(u8::from(store.newest().is_ok()));
        out.gauge("etcd_server_has_leader", "Whether or not a leader exists. 1 is existence, 0 is not", leads)?;
        out.gauge("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise", leads)?;
        out.gauge("etcd_server_is_learner", "Whether or not this member is a learner. 1 if is, 0 otherwise", 0.0)?;
        out.counter("etcd_server_leader_changes_seen", "The number of leader changes seen", 1.0)?;
        out.labelled(
            "etcd_server_id",
            "Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID",
            ("server_id", format!("{:x}", self.member.member_id)),
        )?;
        out.labelled(
            "etcd_server_version",
            "Which version is running. 1 for 'server_version' label with current version",
            ("server_version", ETCD_VERSION.to_owned()),
        )?;
        out.labelled(
            "etcd_cluster_version",
            "Which version is running. 1 for 'cluster_version' label with current cluster version",
            (
                "cluster_version",
                CLUSTER_VERSION.rsplit_once('.').map_or(CLUSTER_VERSION, |(minor, _)| minor).to_owned(),
            ),
        )?;
        // A write is proposed, committed and applied in one step, so the revision counts them.
        out.gauge(
            "etcd_server_proposals_committed_total",
            "The total number of consensus proposals committed",
            revision,
        )?;
        out.gauge("etcd_server_proposals_applied_total", "The total number of consensus proposals applied", revision)?;
        out.gauge("etcd_server_proposals_pending", "The current number of pending proposals to commit", 0.0)?;
        let failed = load(&counters.failed_batches);
        out.counter("etcd_server_proposals_failed", "The total number of failed proposals seen", failed)?;
        out.gauge("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes", self.quota as f64)?;
        let size = store.data_size();
        out.gauge(
            "etcd_mvcc_db_total_size_in_bytes",
            "Size of keys and values with their history since the compaction, in bytes",
            size.total as f64,
        )?;
        out.gauge("etcd_mvcc_db_total_size_in_use_in_bytes", "The same: no space is reserved", size.total as f64)?;
        out.gauge("gitcd_live_bytes", "Size of the newest versions of all keys, in bytes", size.live as f64)?;
        let (ranges, puts) = (load(&counters.ranges), load(&counters.puts));
        out.counter("etcd_mvcc_range", "Total number of ranges seen by this member", ranges)?;
        out.counter("etcd_mvcc_put", "Total number of puts seen by this member", puts)?;
        out.counter("etcd_mvcc_delete", "Total number of deletes seen by this member", load(&counters.deletes))?;
        out.counter("etcd_mvcc_txn", "Total number of txns seen by this member", load(&counters.txns))?;
        out.gauge("etcd_debugging_mvcc_current_revision", "The current revision of store", revision)?;
        let compacted = store.compacted().get() as f64;
        out.gauge("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction in store", compacted)?;
        let (keys, _) = store.sizes();
        out.gauge("etcd_debugging_mvcc_keys_total", "Total number of keys", keys as f64)?;
        let watchers = store.hub().watchers() as f64;
        out.gauge("etcd_debugging_mvcc_watcher_total", "Total number of watchers", watchers)?;
        let streams = store.hub().streams() as f64;
        out.gauge("etcd_debugging_mvcc_watch_stream_total", "Total number of watch streams", streams)?;
        let help = "Total number of unsynced slow watchers";
        out.gauge("etcd_debugging_mvcc_slow_watcher_total", help, slow as f64)?;
        let events = load(&counters.events);
        out.counter("etcd_debugging_mvcc_events", "Total number of events sent by this member", events)?;
        let granted = load(&counters.leases_granted);
        out.counter("etcd_debugging_lease_granted", "The total number of granted leases", granted)?;
        let revoked = load(&counters.leases_revoked);
        out.counter("etcd_debugging_lease_revoked", "The total number of revoked leases", revoked)?;
        let (received, sent) = (load(&self.network.received), load(&self.network.sent));
        let help = "The total number of bytes received from grpc clients";
        out.counter("etcd_network_client_grpc_received_bytes", help, received)?;
        out.counter("etcd_network_client_grpc_sent_bytes", "The total number of bytes sent to grpc clients", sent)
    }
}

fn process(out: &mut Out) -> Result<(), Error> {
    let process = Process::now();
    if let Some(seconds) = process.cpu_seconds {
        out.counter("process_cpu_seconds", "Total user and system CPU time spent in seconds", seconds)?;
    }
    let counters = [
        (
            "process_network_receive_bytes",
            "Number of bytes received by the process over the network",
            process.received_bytes,
        ),
        ("process_network_transmit_bytes", "Number of bytes sent by the process over the network", process.sent_bytes),
    ];
    for (name, help, value) in counters {
        if let Some(value) = value {
            out.counter(name, help, value)?;
        }
    }
    let gauges = [
        ("os_fd_used", "The number of used file descriptors", process.open_fds),
        ("os_fd_limit", "The file descriptor limit", process.max_fds),
        (
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes",
            process.virtual_max_bytes,
        ),
        ("process_resident_memory_bytes", "Resident memory size in bytes", process.resident_bytes),
        ("process_virtual_memory_bytes", "Virtual memory size in bytes", process.virtual_bytes),
        ("process_start_time_seconds", "Start time of the process since unix epoch in seconds", process.start_seconds),
        ("process_open_fds", "Number of open file descriptors", process.open_fds),
        ("process_max_fds", "Maximum number of open file descriptors", process.max_fds),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            out.gauge(name, help, value)?;
        }
    }
    Ok(())
}

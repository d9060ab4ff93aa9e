//! More of etcd's metrics, with the same names, types and buckets. `docs/etcd.md` lists those without a meaning here.

use std::fmt::Error;
use std::sync::atomic::Ordering;

use gitcd_mvcc::doubling_histogram::DoublingHistogram;
use gitcd_mvcc::work::{APPLIED, Outcomes};
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::Source;
use super::figures::Out;

const SECONDS_PER_NANO: f64 = 1e-9;
const MILLIS_PER_NANO: f64 = 1e-6;

impl Out<'_> {
    fn amounts(&mut self, name: &str, help: &str, unit: f64, amounts: &DoublingHistogram) -> Result<(), Error> {
        amounts.encode(unit, self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?)
    }

    fn family(
        &mut self,
        (name, help): (&str, &str),
        counter: bool,
        samples: impl IntoIterator<Item = (impl EncodeLabelSet, f64)>,
    ) -> Result<(), Error> {
        let kind = if counter { MetricType::Counter } else { MetricType::Gauge };
        let mut encoder = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in samples {
            let encoder = encoder.encode_family(&labels)?;
            if counter {
                ConstCounter::new(value).encode(encoder)?;
            } else {
                ConstGauge::new(value).encode(encoder)?;
            }
        }
        Ok(())
    }

    /// Writes the histograms that have observations, each with its labels.
    fn outcomes<'o>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = (Vec<(&'static str, &'static str)>, &'o Outcomes)>,
    ) -> Result<(), Error> {
        let mut encoder = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, outcomes) in all {
            for (success, amounts) in ["true", "false"].into_iter().zip(outcomes) {
                if amounts.count() > 0 {
                    let labels = [&*labels, &[("success", success)]].concat();
                    amounts.encode(SECONDS_PER_NANO, encoder.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Source {
    pub(super) fn more_of_etcd(&self, out: &mut Out) -> Result<(), Error> {
        self.server(out)?;
        self.health_pages(out)?;
        self.storage(out)?;
        self.compactions(out)?;
        self.leases(out)?;
        let scrapes = [("200", self.scrapes.ended()), ("500", 0), ("503", 0)];
        let scrapes = scrapes.map(|(code, number)| ([("code", code)], number as f64));
        out.family(("promhttp_metric_handler_requests", "Total number of scrapes by HTTP status code"), true, scrapes)?;
        let help = "Current number of scrapes being served";
        out.gauge("promhttp_metric_handler_requests_in_flight", help, self.scrapes.in_flight() as f64)
    }

    fn server(&self, out: &mut Out) -> Result<(), Error> {
        let work = &self.store.counters.work;
        let received = self.requests.messages().map(|(labels, received, _)| (labels, received as f64));
        let help = "Total number of messages received on the server";
        out.family(("grpc_server_msg_received", help), true, received)?;
        let sent = self.requests.messages().map(|(labels, _, sent)| (labels, sent as f64));
        out.family(("grpc_server_msg_sent", "Total number of messages sent by the server"), true, sent)?;
        let requests = self.requests.clients.counted().into_iter().map(|(version, kind, number)| {
            ([("type", kind.to_owned()), ("client_api_version", version)], number as f64)
        });
        let help = "The total number of client requests per client version";
        out.family(("etcd_server_client_requests", help), true, requests)?;
        let slow = work.slow.load(Ordering::Relaxed) as f64;
        out.counter("etcd_server_slow_apply", "The total number of requests that took more than 100 ms", slow)?;
        let help = "The total number of pending read indexes not in sync: reads never wait";
        out.counter("etcd_server_slow_read_indexes", help, 0.0)?;
        out.counter("etcd_server_read_indexes_failed", "The total number of failed read indexes seen", 0.0)?;
        let applied = APPLIED.into_iter().zip(&work.applied);
        let applied = applied.map(|(op, outcomes)| (vec![("version", "v3"), ("op", op)], outcomes));
        let help = "The latency distributions of writes applied by the store, before they are durable";
        out.outcomes("etcd_server_apply_duration_seconds", help, applied)?;
        let help = "The latency distributions of ranges";
        out.outcomes("etcd_server_range_duration_seconds", help, [(Vec::new(), &work.ranges)])?;
        let alarms = self.store.alarms().list().into_iter();
        let alarms = alarms
            .map(|(alarm, id)| ([("server_id", format!("{id:x}")), ("alarm_type", alarm.name().to_owned())], 1.0));
        let help = "Alarms that are raised. 1 for 'server_id' label with their member, 2 for 'alarm_type' label with their type";
        out.family(("etcd_debugging_server_alarms", help), false, alarms)?;
        // There are no users, so it never changes.
        out.gauge("etcd_debugging_auth_revision", "The current revision of auth store", 1.0)
    }

    fn health_pages(&self, out: &mut Out) -> Result<(), Error> {
        let (healthy, unhealthy) = self.health.answers();
        out.counter("etcd_server_health_success", "The total number of successful health checks", healthy as f64)?;
        out.counter("etcd_server_health_failures", "The total number of failed health checks", unhealthy as f64)?;
        let checks = self.health.checks();
        let last = checks
            .iter()
            .map(|check| ([("type", check.kind), ("name", check.name)], f64::from(u8::from(check.last_passed))));
        out.family(("etcd_server_healthcheck", "The result of each kind of healthcheck"), false, last)?;
        let all = checks.iter().flat_map(|check| {
            let numbers = [("success", check.passed), ("error", check.failed)].into_iter();
            numbers.filter(|(_, number)| *number > 0).map(|(status, number)| {
                ([("type", check.kind), ("name", check.name), ("status", status)], number as f64)
            })
        });
        out.family(("etcd_server_healthchecks", "The total number of each kind of healthcheck"), true, all)
    }

    fn storage(&self, out: &mut Out) -> Result<(), Error> {
        let counters = &self.store.counters;
        let work = &counters.work;
        let written = counters.journal_bytes.load(Ordering::Relaxed) as f64;
        out.gauge("etcd_disk_wal_write_bytes_total", "Total number of bytes written in the journal", written)?;
        for (name, help, amounts) in [
            (
                "etcd_disk_wal_write_duration_seconds",
                "The latency distributions of write called by the journal",
                &work.journal_writes,
            ),
            (
                "etcd_disk_backend_defrag_duration_seconds",
                "The latency distribution of requests to defragment, which is done in the background",
                &work.defragmentations,
            ),
            (
                "etcd_disk_backend_snapshot_duration_seconds",
                "The latency distribution of snapshots that clients asked for",
                &work.snapshots,
            ),
            ("etcd_mvcc_hash_duration_seconds", "The latency distribution of storage hash operation", &work.hash),
            (
                "etcd_mvcc_hash_rev_duration_seconds",
                "The latency distribution of storage hash by revision operation",
                &work.hash_at_revision,
            ),
        ] {
            out.amounts(name, help, SECONDS_PER_NANO, amounts)?;
        }
        let help = "Whether or not defrag is active on the member. 1 means active, 0 means not";
        let running = self.maintenance.running.load(Ordering::Relaxed) as f64;
        out.gauge("etcd_disk_defrag_inflight", help, running)?;
        let put = work.put_bytes.load(Ordering::Relaxed) as f64;
        let help = "The total size of put kv pairs seen by this member";
        out.gauge("etcd_debugging_mvcc_total_put_size_in_bytes", help, put)?;
        let help = "Total number of pending events to be sent: watchers read them from the log, none waits elsewhere";
        out.gauge("etcd_debugging_mvcc_pending_events_total", help, 0.0)
    }

    fn compactions(&self, out: &mut Out) -> Result<(), Error> {
        let work = &self.store.counters.work;
        let versions = work.compacted_versions.load(Ordering::Relaxed) as f64;
        out.counter("etcd_debugging_mvcc_db_compaction_keys", "Total number of versions compacted", versions)?;
        let last = work.compacted_at.load(Ordering::Relaxed) as f64;
        let help = "The unix time of the last compaction. Resets to 0 on start";
        out.gauge("etcd_debugging_mvcc_db_compaction_last", help, last)?;
        let [index, all] = &work.compaction_pauses;
        for (name, help, amounts) in [
            (
                "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds",
                "Bucketed histogram of index compaction pause duration",
                index,
            ),
            (
                "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds",
                "Bucketed histogram of compaction pause duration: index and data are one",
                all,
            ),
            (
                "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds",
                "Bucketed histogram of compaction total duration",
                &work.compactions,
            ),
        ] {
            out.amounts(name, help, MILLIS_PER_NANO, amounts)?;
        }
        Ok(())
    }

    fn leases(&self, out: &mut Out) -> Result<(), Error> {
        let work = &self.store.counters.work;
        let renewed = work.leases_renewed.load(Ordering::Relaxed) as f64;
        out.counter("etcd_debugging_lease_renewed", "The number of renewed leases seen by the leader", renewed)?;
        let expired = work.leases_expired.load(Ordering::Relaxed) as f64;
        out.counter("etcd_debugging_server_lease_expired", "The total number of expired leases", expired)?;
        let help = "Bucketed histogram of lease TTLs";
        out.amounts("etcd_debugging_lease_ttl_total", help, 1.0, &work.lease_ttl)
    }
}

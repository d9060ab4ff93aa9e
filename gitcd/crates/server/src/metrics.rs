//! Prometheus metrics, as `OpenMetrics` or in the older plain text: gitcd's own, and etcd's under the names that dashboards and
//! alerts rely on.

mod audit;
mod clients;
mod codes;
mod etcd;
mod figures;
mod health;
mod history;
mod messages;
mod process;
mod remotes;
mod requests;
mod scrapes;
mod tasks;

use std::sync::Arc;

use gitcd_engine::audit::Audit;
use gitcd_engine::committer;
use gitcd_engine::maintenance;
use gitcd_mvcc::Store;
use prometheus_client::registry::Registry;
use trishanku_service::exposition;

pub use self::health::Health;
pub(crate) use self::process::file_descriptor_limit;
pub(crate) use self::requests::Request;
pub use self::requests::Requests;
pub use self::scrapes::Scrapes;
use crate::member::Member;
use crate::status::Reporter;
pub use gitcd_mvcc::work::Work;
pub use gitcd_net::listener::Network;

/// The sources of a branch's metrics.
#[derive(Clone, Debug)]
pub struct Source {
    /// The server as a cluster member.
    pub member: Arc<Member>,
    /// The folder of its packs.
    pub packs: std::path::PathBuf,
    /// etcd's quota, in bytes.
    pub quota: u64,
    /// Its store.
    pub store: Arc<Store>,
    /// Counters of its committer.
    pub committer: Arc<committer::Counters>,
    /// Its audit events, if commits name actors.
    pub audit: Option<Arc<Audit>>,
    /// Counters of its reads from Git.
    pub history: Arc<crate::api::HistoryCounters>,
    /// Counters of its maintenance.
    pub maintenance: Arc<maintenance::Counters>,
    /// Its status, and that of its remotes.
    pub status: Arc<Reporter>,
    /// Its requests.
    pub requests: Requests,
    /// Its connections.
    pub network: Arc<Network>,
    /// Results of its health checks.
    pub health: Arc<Health>,
    /// Scrapes of its metrics.
    pub scrapes: Scrapes,
}

impl Source {
    /// Returns a registry of all its metrics, which are collected at every scrape.
    pub fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        self.requests.register(&mut registry);
        let histograms = [
            (
                "etcd_disk_wal_fsync_duration_seconds",
                "The latency distributions of fsync called by the journal",
                &self.store.counters.fsync_seconds,
            ),
            (
                "etcd_disk_backend_commit_duration_seconds",
                "The latency distributions of flushes to Git: pack, references, fsyncs",
                &self.committer.flush_seconds,
            ),
        ];
        for (name, help, histogram) in histograms {
            registry.register(name, help, histogram.clone());
        }
        registry.register_collector(Box::new(self.clone()));
        registry
    }
}

/// Counters without `_total` in etcd, and so in the plain text.
const WITHOUT_TOTAL: &[&str] = &["etcd_server_health_success", "etcd_server_health_failures"];

/// Encodes the metrics as text.
pub fn text(registry: &Registry) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Only our own collectors could fail, and they do not.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}

/// Converts the text to Prometheus' older format, which most clients request.
pub fn plain(open: &str) -> String {
    exposition::plain(open, WITHOUT_TOTAL)
}

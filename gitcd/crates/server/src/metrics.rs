//! Figures for Prometheus, as `OpenMetrics` or in the older plain text: gitcd's own, and those of etcd under etcd's names, by
//! which dashboards and alerts go.

mod clients;
mod codes;
mod etcd;
mod figures;
mod health;
mod messages;
mod plain;
mod process;
mod remotes;
mod requests;
mod scrapes;

use std::sync::Arc;

use gitcd_engine::committer;
use gitcd_engine::maintenance;
use gitcd_mvcc::Store;
use prometheus_client::registry::Registry;

pub use self::health::Health;
pub use self::plain::plain;
pub(crate) use self::process::file_descriptor_limit;
pub(crate) use self::requests::Request;
pub use self::requests::Requests;
pub use self::scrapes::Scrapes;
use crate::member::Member;
use crate::status::Reporter;
pub use gitcd_mvcc::work::Work;
pub use gitcd_net::listener::Network;

/// What the figures of a branch are taken from.
#[derive(Clone, Debug)]
pub struct Source {
    /// Who it is to its clients.
    pub member: Arc<Member>,
    /// Where its packs are.
    pub packs: std::path::PathBuf,
    /// etcd's quota, in bytes.
    pub quota: u64,
    /// Its store.
    pub store: Arc<Store>,
    /// Its committer.
    pub committer: Arc<committer::Counters>,
    /// What keeps its repository in order.
    pub maintenance: Arc<maintenance::Counters>,
    /// Its remotes.
    pub status: Arc<Reporter>,
    /// Its requests.
    pub requests: Requests,
    /// Its connections.
    pub network: Arc<Network>,
    /// What its health pages answered.
    pub health: Arc<Health>,
    /// How often its figures were asked for.
    pub scrapes: Scrapes,
}

impl Source {
    /// All its figures, read anew at every scrape.
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

/// The figures as text.
pub fn text(registry: &Registry) -> String {
    let mut text = String::with_capacity(16 << 10);
    // Only a collector of ours could fail, and they do not.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}

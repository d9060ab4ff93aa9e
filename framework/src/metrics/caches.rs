//! Metrics of the caches.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    group: String,
    kind: String,
}

/// Metrics of all caches.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheMetrics {
    misfits: Family<Of, Gauge>,
}

impl CacheMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let of = Self::default();
        let help = "Number of objects that are skipped, because they do not match their type";
        registry.register("cache_unreadable_objects", help, of.misfits.clone());
        of
    }

    /// Returns the number of invalid objects of a kind; present from the start.
    pub(crate) fn misfits(&self, group: &str, kind: &str) -> Gauge {
        self.misfits.get_or_create_owned(&Of { group: group.to_owned(), kind: kind.to_owned() })
    }
}

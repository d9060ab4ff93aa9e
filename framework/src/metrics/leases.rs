//! Metrics of leader election.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The lease's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    name: String,
}

#[derive(Debug)]
pub(super) struct Leases {
    master: Family<Of, Gauge>,
    slowpath: Family<Of, Counter>,
}

impl Leases {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let of = Self { master: Family::default(), slowpath: Family::default() };
        let registry = registry.sub_registry_with_prefix("leader_election");
        let help = "Whether this replica is master of the lease of that name: 0 is a backup, 1 is master";
        registry.register("master_status", help, of.master.clone());
        let help = "Total number of renewals of the lease of that name that had to read it first";
        registry.register("slowpath", help, of.slowpath.clone());
        of
    }

    pub(super) fn of(&self, lease: &str) -> LeaseMetrics {
        let of = Of { name: lease.to_owned() };
        LeaseMetrics { master: self.master.get_or_create_owned(&of), slowpath: self.slowpath.get_or_create_owned(&of) }
    }
}

/// Metrics of one lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseMetrics {
    master: Gauge,
    slowpath: Counter,
}

impl LeaseMetrics {
    pub(crate) fn leads(&self, leads: bool) {
        self.master.set(leads.into());
    }

    pub(crate) fn slow_path(&self) {
        self.slowpath.inc();
    }
}

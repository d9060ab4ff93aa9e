//! `gitcd-bench memory`.

use gitcd_bench::output::Output;

use super::Args;
use crate::memory::Plan;
use crate::server::Kind;

/// Options of the memory measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Memory {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub(crate) keys: u64,

    /// Updates of random keys after that
    #[arg(long, value_name = "N", default_value_t = 300_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) updates: u64,

    /// Revisions between compactions
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(i64).range(1_000..=1_000_000_000))]
    pub(crate) compact_every: i64,

    /// Revisions of the second case, without compaction; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 250_000, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub(crate) uncompacted: u64,

    /// Keys of the second case
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) uncompacted_keys: u64,

    /// The servers
    #[arg(long = "compare", hide = true, value_enum, value_delimiter = ',', default_value = "gitcd,etcd")]
    pub(crate) servers: Vec<Kind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Memory {
    /// The cases, in the order in which they are measured.
    pub(crate) fn plans(&self) -> Vec<Plan> {
        let &Self { keys, updates, compact_every, uncompacted, uncompacted_keys, .. } = self;
        let compacted = Plan { keys, updates, compact_every: Some(compact_every) };
        let keys = uncompacted_keys.min(uncompacted);
        let kept = Plan { keys, updates: uncompacted - keys, compact_every: None };
        if uncompacted == 0 { vec![compacted] } else { vec![compacted, kept] }
    }

    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let Self { keys, updates, compact_every, uncompacted, uncompacted_keys, .. } = self;
        let shared = args.shared();
        format!(
            "gitcd-bench memory --keys {keys} --updates {updates} --compact-every {compact_every} --uncompacted {uncompacted} \
             --uncompacted-keys {uncompacted_keys}{shared}"
        )
    }
}

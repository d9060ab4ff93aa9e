//! `gitcd-bench growth`.

use std::fmt::Display;

use gitcd_bench::output::Output;

use super::Args;
use crate::growth_plan::{Part, Plan};

/// Options of the measurement of growth.
#[derive(Debug, clap::Args)]
pub(crate) struct Growth {
    /// Only these, comma-separated
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "keys,list,watchers,branches"
    )]
    pub(crate) only: Vec<Part>,

    /// Numbers of keys, ascending
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "10000,100000,1000000",
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    keys: Vec<u64>,

    /// Keys of the list
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    listed: u64,

    /// Numbers of watchers, ascending
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "100,1000,10000",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    watchers: Vec<usize>,

    /// Numbers of branches
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "5,20,50,200",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(2..=1_000))]
    branches: Vec<usize>,

    /// Writes a second to all branches together
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    branch_rate: u64,

    /// Seconds of each load
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(4..=3_600))]
    seconds: u64,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Growth {
    /// The amount of load.
    pub(crate) fn plan(&self) -> Plan {
        let (mut keys, mut watchers) = (self.keys.clone(), self.watchers.clone());
        keys.sort_unstable();
        watchers.sort_unstable();
        let &Self { listed, branch_rate, seconds, .. } = self;
        Plan { keys, listed, watchers, branches: self.branches.clone(), branch_rate, seconds }
    }

    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let only: Vec<&str> = self.only.iter().map(|part| part.name()).collect();
        let only = if only.len() == Part::ALL.len() { String::new() } else { format!(" --only {}", only.join(",")) };
        let Plan { keys, listed, watchers, branches, branch_rate, seconds } = self.plan();
        format!(
            "gitcd-bench growth{only} --keys {} --listed {listed} --watchers {} --branches {} --branch-rate {branch_rate} --seconds \
             {seconds}{}",
            list(&keys),
            list(&watchers),
            list(&branches),
            args.shared()
        )
    }
}

fn list<T: Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

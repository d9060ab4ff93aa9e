//! `gitcd-bench hostile`.

use clap::ValueEnum;
use gitcd_bench::output::Output;

use super::Args;
use crate::hostile::Attack;

/// Options of the measurement of latency under hostile requests.
#[derive(Debug, clap::Args)]
pub(crate) struct Hostile {
    /// Duration in seconds of each attack and of the baseline before it
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,

    /// Puts per second; gets run at the same rate
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) rate: u64,

    /// Run only these attacks, comma-separated [default: all]
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    only: Vec<Attack>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Hostile {
    /// The selected kinds of requests.
    pub(crate) fn attacks(&self) -> &[Attack] {
        if self.only.is_empty() { &Attack::ALL } else { &self.only }
    }

    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let only: Vec<_> = self.only.iter().filter_map(ValueEnum::to_possible_value).collect();
        let only: Vec<_> = only.iter().map(clap::builder::PossibleValue::get_name).collect();
        let only = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
        format!("gitcd-bench hostile{only} --seconds {} --rate {}{}", self.seconds, self.rate, args.shared())
    }
}

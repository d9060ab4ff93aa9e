//! Measures the framework side by side with bare kube-runtime and Go's controller-runtime.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use clap::builder::RangedU64ValueParser;
use gitcd_bench::document::Section;
use gitcd_bench::machine::Machine;
use gitcd_bench::output::{Output, now};
use tokio::signal::unix::{SignalKind, signal};
use trishanku_framework_bench::contestant::{Kind, Programs};
use trishanku_framework_bench::report::Report;
use trishanku_framework_bench::run;
use trishanku_framework_bench::turn::Plan;

/// Measures the framework side by side with bare kube-runtime and Go's controller-runtime.
///
/// Tables go to standard output, progress to standard error.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Number of objects; each owns two
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    objects: usize,

    /// Objects at a time
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    concurrency: u16,

    /// Turns of each contestant
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: u32,

    /// Only these, separated by commas
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "framework,kube-runtime,go,go-stripped"
    )]
    only: Vec<Kind>,

    /// Idle seconds before memory is measured
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    rest: u64,

    /// Seconds between resyncs; more than a start and idling take
    #[arg(long, value_name = "SECONDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(2..=36_000))]
    resync: u64,

    /// Folder with the contestants' programs [default: this program's]
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

impl Args {
    /// Returns the command for the report, without paths of this machine.
    fn given(&self) -> String {
        let only: Vec<_> = self.only.iter().map(|kind| kind.name()).collect();
        format!(
            "trishanku-framework-bench --objects {} --concurrency {} --rounds {} --only {} --rest {} --resync {}",
            self.objects,
            self.concurrency,
            self.rounds,
            only.join(","),
            self.rest,
            self.resync,
        )
    }
}

fn main() -> ExitCode {
    match measure(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trishanku-framework-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<()> {
    let programs = match &args.programs {
        Some(folder) => Programs::within(folder),
        None => Programs::within(std::env::current_exe()?.parent().context("a program is in a folder")?),
    };
    let plan = Plan {
        objects: args.objects,
        concurrency: args.concurrency,
        rest: Duration::from_secs(args.rest),
        resync: Duration::from_secs(args.resync),
    };
    let (machine, date) = (Machine::look(&std::env::temp_dir()), now());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let sides = runtime.block_on(async {
        // When the run is dropped, its contestant and its cluster are killed.
        tokio::select! {
            sides = run::run(&args.only, &programs, plan, args.rounds) => sides,
            stopped = stop_signal() => {
                stopped?;
                bail!("stopped; nothing is left running")
            }
        }
    })?;
    let report = Report { command: args.given(), date, machine, plan, sides };
    args.output.deliver(&report, &report.tables(), Section::Framework, &report.section())
}

async fn stop_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }
}

//! The command line.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand};
use gitcd_bench::output::Output;

use crate::branches::Topology;
use crate::headless::Shape;
use crate::server::{Kind, Program};
use crate::storage::{self, Part};
use crate::workload::{self, Workload};

const SECONDS: f64 = 120.0;
const QUICK_SECONDS: f64 = 15.0;
const QUIET: Duration = Duration::from_secs(10);
const QUICK_QUIET: Duration = Duration::from_secs(2);

/// Measures gitcd side by side with etcd.
///
/// Without a subcommand both are started and put under load in turns; tables go to standard output,
/// progress to standard error.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) compare: Compare,

    /// gitcd's program [default: next to this one]
    #[arg(long, global = true, value_name = "PATH")]
    gitcd: Option<PathBuf>,

    /// etcd's program [default: of `make assets`, in its cache or where `KUBEBUILDER_ASSETS` says]
    #[arg(long, global = true, value_name = "PATH")]
    etcd: Option<PathBuf>,

    /// One more argument for `gitcd serve`; may be repeated
    #[arg(long, global = true, value_name = "ARG", allow_hyphen_values = true)]
    gitcd_arg: Vec<OsString>,

    /// One more argument for etcd; may be repeated
    #[arg(long, global = true, value_name = "ARG", allow_hyphen_values = true)]
    etcd_arg: Vec<OsString>,

    /// Folder for the servers' data, which is removed at the end [default: next to this program]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// HTTP/2 connections to each server, shared by all clients
    #[arg(long, global = true, value_name = "N", default_value_t = 8,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) connections: usize,

    /// Threads of the client
    #[arg(long, global = true, value_name = "N", default_value_t = 2,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    threads: usize,
}

/// Other measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures what gitcd writes to disk for one write a second into a directory of 10,000 keys
    IdleCost(Idle),
    /// Measures the memory of both for many keys and a long history
    Memory(Memory),
    /// Measures both through a kube-apiserver each
    Kube(Kube),
    /// Measures Git as a database: bytes a revision, joining of packs, a commit each, a large directory, starts
    Storage(Storage),
    /// Measures how fast branches of gitcd follow one another, and a merge into 100,000 keys
    Branches(Branches),
    /// Measures a headless cluster beside a central control plane; ends with 1 if it is too slow
    Headless(Headless),
}

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// Seconds of load in all, over both servers and all workloads [default: 120]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,

    /// About 15 seconds of load: whether it works, not how fast
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,

    /// Only these workloads, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Revisions between two compactions
    #[arg(long, value_name = "N", default_value_t = 50_000,
          value_parser = clap::value_parser!(i64).range(1_000..=1_000_000_000))]
    pub(crate) compact_every: i64,

    /// The two servers
    #[arg(long = "compare", hide = true, value_enum, value_delimiter = ',', default_value = "gitcd,etcd")]
    pub(crate) servers: Vec<Kind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the idle cost.
#[derive(Debug, clap::Args)]
pub(crate) struct Idle {
    /// Number of writes, one a second
    #[arg(long, value_name = "N", default_value_t = 600,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) seconds: u64,

    /// The server
    #[arg(long, hide = true, value_enum, default_value = "gitcd")]
    pub(crate) server: Kind,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the memory measurement.
#[derive(Debug, clap::Args)]
pub(crate) struct Memory {
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub(crate) keys: u64,

    /// Puts to random ones of them after that
    #[arg(long, value_name = "N", default_value_t = 300_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) updates: u64,

    /// Revisions between two compactions
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(i64).range(1_000..=1_000_000_000))]
    pub(crate) compact_every: i64,

    /// The servers
    #[arg(long = "compare", hide = true, value_enum, value_delimiter = ',', default_value = "gitcd,etcd")]
    pub(crate) servers: Vec<Kind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the measurement through kube-apiserver.
#[derive(Debug, clap::Args)]
pub(crate) struct Kube {
    /// Number of objects that are created, patched, listed and deleted in each round
    #[arg(long, value_name = "N", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(crate) objects: u64,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,

    /// Writes under way at once
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(crate) clients: usize,

    /// How kube-apiserver encodes what it stores
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    pub(crate) storage_media_type: String,

    /// Folder with kube-apiserver [default: of `make assets`, in its cache or where `KUBEBUILDER_ASSETS` says]
    #[arg(long, value_name = "DIR")]
    pub(crate) assets: Option<PathBuf>,

    /// The servers
    #[arg(long = "compare", hide = true, value_enum, value_delimiter = ',', default_value = "gitcd,etcd")]
    pub(crate) servers: Vec<Kind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the measurement of Git as a database.
#[derive(Debug, clap::Args)]
pub(crate) struct Storage {
    /// Revisions that are written at full speed
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) revisions: u64,

    /// Keys that they are spread over
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(crate) keys: u64,

    /// Seconds of each stretch of load
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,

    /// Writes a second where each gets its commit
    #[arg(long, value_name = "N", default_value_t = 8_500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: u64,

    /// Keys in the large directory
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..=99_999))]
    pub(crate) entries: u64,

    /// Writes into it, one a second
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) trickle: u64,

    /// Keys of the servers that are started
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(crate) start_keys: u64,

    /// Updates of them before, each with its commit
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub(crate) start_updates: u64,

    /// Starts of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) starts: u32,

    /// Only these, separated by commas
    #[arg(
        long,
        value_name = "NAMES",
        value_enum,
        value_delimiter = ',',
        default_value = "history,pace,directory,start"
    )]
    pub(crate) only: Vec<Part>,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the measurement of branches.
#[derive(Debug, clap::Args)]
pub(crate) struct Branches {
    /// Seconds of writes for each way from one branch to the other
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,

    /// Only these ways, separated by commas
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_value = "folder,host,served")]
    pub(crate) only: Vec<Topology>,

    /// Writes a second on each side
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) rate: u64,

    /// Keys of the branches that are merged
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(crate) keys: u64,

    /// Keys that each side changes before a merge
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) changes: u64,

    /// Merges
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the measurement of a headless cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Headless {
    /// Deployments, one after the other
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(crate) tries: usize,

    /// Pods of each of them
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(crate) replicas: usize,

    /// Deployments at once
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=2_000))]
    pub(crate) deployments: usize,

    /// Pods of each of those
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) pods_each: usize,

    /// Only these, separated by commas
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_value = "central,star,mesh")]
    pub(crate) only: Vec<Shape>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Headless {
    /// The command for the report.
    pub(crate) fn command(&self) -> String {
        let Self { tries, replicas, deployments, pods_each, .. } = self;
        let only: Vec<&str> = self.only.iter().map(|one| one.name()).collect();
        let only = if only.len() == Shape::ALL.len() { String::new() } else { format!(" --only {}", only.join(",")) };
        format!(
            "gitcd-bench headless{only} --tries {tries} --replicas {replicas} --deployments {deployments} --pods-each {pods_each}"
        )
    }
}

impl Args {
    /// gitcd, if it was given.
    pub(crate) fn gitcd(&self) -> Option<&Path> {
        self.gitcd.as_deref()
    }

    /// Threads of the client.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// The program to start for a server of this kind.
    pub(crate) fn program(&self, kind: Kind) -> Result<Program> {
        let (given, more) = match kind {
            Kind::Gitcd => (&self.gitcd, &self.gitcd_arg),
            Kind::Etcd => (&self.etcd, &self.etcd_arg),
        };
        Program::find(kind, given.as_deref(), more)
    }

    /// What was given, for the report: all that bears on figures, no paths of this machine.
    fn shared(&self) -> String {
        let mut text = format!(" --connections {} --threads {}", self.connections, self.threads);
        for (name, arguments) in [("gitcd", &self.gitcd_arg), ("etcd", &self.etcd_arg)] {
            for argument in arguments {
                write!(text, " --{name}-arg={}", argument.to_string_lossy()).expect("a string takes all");
            }
        }
        text
    }
}

impl Compare {
    /// Seconds of load in all.
    pub(crate) fn seconds(&self) -> f64 {
        match self.seconds {
            Some(seconds) => f64::from(seconds),
            None if self.quick => QUICK_SECONDS,
            None => SECONDS,
        }
    }

    /// Wait before disks are measured.
    pub(crate) fn quiet(&self) -> Duration {
        if self.quick { QUICK_QUIET } else { QUIET }
    }

    /// The workloads asked for.
    ///
    /// # Errors
    /// There is none of a name; the message has all names.
    pub(crate) fn workloads(&self) -> Result<Vec<Box<dyn Workload>>> {
        let mut all = workload::all();
        let names: Vec<&str> = all.iter().map(|one| one.spec().name).collect();
        for asked in &self.only {
            let known = names.contains(&asked.as_str());
            ensure!(known, "no workload {asked}; there are {}", names.join(", "));
        }
        if !self.only.is_empty() {
            all.retain(|one| self.only.iter().any(|asked| asked == one.spec().name));
        }
        Ok(all)
    }

    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let only = if self.only.is_empty() { String::new() } else { format!(" --only {}", self.only.join(",")) };
        format!(
            "gitcd-bench --seconds {}{only} --compact-every {}{}",
            self.seconds(),
            self.compact_every,
            args.shared()
        )
    }
}

impl Idle {
    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        format!("gitcd-bench idle-cost --seconds {}{}", self.seconds, args.shared())
    }
}

impl Memory {
    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let Self { keys, updates, compact_every, .. } = self;
        let shared = args.shared();
        format!("gitcd-bench memory --keys {keys} --updates {updates} --compact-every {compact_every}{shared}")
    }
}

impl Kube {
    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let Self { objects, rounds, clients, storage_media_type, .. } = self;
        format!(
            "gitcd-bench kube --objects {objects} --rounds {rounds} --clients {clients} --storage-media-type \
             {storage_media_type}{}",
            args.shared()
        )
    }
}

impl Storage {
    /// How much is written.
    pub(crate) fn plan(&self) -> storage::Plan {
        let &Self { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts, .. } = self;
        storage::Plan { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts }
    }

    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let storage::Plan { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts } =
            self.plan();
        let only: Vec<&str> = self.only.iter().map(|part| part.name()).collect();
        let only = if only.len() == Part::ALL.len() { String::new() } else { format!(" --only {}", only.join(",")) };
        format!(
            "gitcd-bench storage{only} --revisions {revisions} --keys {keys} --seconds {seconds} --rate {rate} --entries {entries} \
             --trickle {trickle} --start-keys {start_keys} --start-updates {start_updates} --starts {starts}{}",
            args.shared()
        )
    }
}

impl Branches {
    /// The command for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let Self { seconds, rate, keys, changes, rounds, .. } = self;
        let shared = args.shared();
        let only: Vec<&str> = self.only.iter().map(|one| one.name()).collect();
        let only =
            if only.len() == Topology::ALL.len() { String::new() } else { format!(" --only {}", only.join(",")) };
        format!(
            "gitcd-bench branches{only} --seconds {seconds} --rate {rate} --keys {keys} --changes {changes} --rounds {rounds}{shared}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn an_unknown_workload_is_refused_with_the_names_of_all() {
        let args = Args::parse_from(["gitcd-bench", "--only", "put,nothing"]);
        let error = args.compare.workloads().err().unwrap().to_string();
        assert!(error.contains("no workload nothing") && error.contains("list-500"), "{error}");
        let args = Args::parse_from(["gitcd-bench", "--only", "put,get"]);
        assert_eq!(args.compare.workloads().unwrap().len(), 2);
    }
}

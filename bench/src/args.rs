//! The command line.

mod compare;
mod growth;
mod hostile;
mod memory;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Parser, Subcommand};
use gitcd_bench::output::Output;

pub(crate) use self::compare::Compare;
pub(crate) use self::growth::Growth;
pub(crate) use self::hostile::Hostile;
pub(crate) use self::memory::Memory;
use crate::bare_wire;
use crate::branches::Topology;
use crate::headless::Shape;
use crate::server::{Kind, Program};
use crate::storage_plan::{self, Part};

/// Measures gitcd side by side with etcd.
///
/// Without a subcommand, the servers are started and put under load in turns. Tables go to standard output, progress to
/// standard error.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    #[command(flatten)]
    pub(crate) compare: Compare,

    /// gitcd's program [default: next to this program]
    #[arg(long, global = true, value_name = "PATH")]
    gitcd: Option<PathBuf>,

    /// etcd's program [default: from `make assets`, its cache or `KUBEBUILDER_ASSETS`]
    #[arg(long, global = true, value_name = "PATH")]
    etcd: Option<PathBuf>,

    /// An extra argument for `gitcd serve`; may be repeated
    #[arg(long, global = true, value_name = "ARG", allow_hyphen_values = true)]
    gitcd_arg: Vec<OsString>,

    /// An extra argument for etcd; may be repeated
    #[arg(long, global = true, value_name = "ARG", allow_hyphen_values = true)]
    etcd_arg: Vec<OsString>,

    /// Folder for the servers' data, removed at the end [default: next to this program]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// HTTP/2 connections to each server, shared by all clients
    #[arg(long, global = true, value_name = "N", default_value_t = 8,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub(crate) connections: usize,

    /// Client threads
    #[arg(long, global = true, value_name = "N", default_value_t = 2,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64))]
    threads: usize,
}

/// Measurements other than the comparison.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures the disk writes of gitcd for one write a second into a directory of 10,000 keys
    IdleCost(Idle),
    /// Measures the memory of both with many keys and a long history
    Memory(Memory),
    /// Measures how cost grows with the number of keys, the length of a list, and the numbers of watchers and branches
    Growth(Growth),
    /// Measures both behind a kube-apiserver each
    Kube(Kube),
    /// Measures Git as a database: size, repacks, a commit per revision, a large directory, starts
    Storage(Storage),
    /// Measures replication between branches, and a merge into 100,000 keys
    Branches(Branches),
    /// Measures a headless cluster beside a central control plane; exits with 1 if too slow
    Headless(Headless),
    /// Measures gitcd's latency under hostile requests; exits with 1 if a p99 exceeds three times the baseline
    Hostile(Hostile),
    /// Serves only what the workloads need, without recovery: the limit of a server on this wire, which the comparison starts
    BareWire(bare_wire::BareWireOptions),
}

/// Options of the idle-cost measurement.
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

/// Options of the measurement through kube-apiserver.
#[derive(Debug, clap::Args)]
pub(crate) struct Kube {
    /// Objects created, patched, listed and deleted per round
    #[arg(long, value_name = "N", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(crate) objects: u64,

    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,

    /// Concurrent writes
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(crate) clients: usize,

    /// Storage media type of kube-apiserver
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    pub(crate) storage_media_type: String,

    /// Folder with kube-apiserver [default: from `make assets`, its cache or `KUBEBUILDER_ASSETS`]
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
    /// Revisions written at full speed
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub(crate) revisions: u64,

    /// Keys that hold them
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=1_000_000))]
    pub(crate) keys: u64,

    /// Seconds of each load
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,

    /// Writes a second, each with its own commit
    #[arg(long, value_name = "N", default_value_t = 8_500, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) rate: u64,

    /// Keys in the large directory
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(100..=99_999))]
    pub(crate) entries: u64,

    /// Writes into it, one a second
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) trickle: u64,

    /// Keys of the started servers
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(crate) start_keys: u64,

    /// Updates of them before, one commit each
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub(crate) start_updates: u64,

    /// Starts of each server
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) starts: u32,

    /// Only these, comma-separated
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
    /// Seconds of writes per topology
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub(crate) seconds: u64,

    /// Only these, comma-separated
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_value = "folder,host,served")]
    pub(crate) only: Vec<Topology>,

    /// Writes a second on each side
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) rate: u64,

    /// Keys of the merged branches
    #[arg(long, value_name = "N", default_value_t = 100_000,
          value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    pub(crate) keys: u64,

    /// Keys changed on each side before a merge
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) changes: u64,

    /// Number of merges
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) rounds: u32,

    #[command(flatten)]
    pub(crate) output: Output,
}

/// Options of the measurement of a headless cluster.
#[derive(Debug, clap::Args)]
pub(crate) struct Headless {
    /// Deployments, one after the other; 0 to skip this
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=1_000))]
    pub(crate) tries: usize,

    /// Pods of each
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1_000))]
    pub(crate) replicas: usize,

    /// Deployments at once; 0 to skip this
    #[arg(long, value_name = "N", default_value_t = 200,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(0..=2_000))]
    pub(crate) deployments: usize,

    /// Pods of each of those
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) pods_each: usize,

    /// For how long memory and processor time of the idle control plane are measured; 0 for not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) idle_seconds: u64,

    /// Only these, comma-separated
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',', default_value = "central,star,mesh")]
    pub(crate) only: Vec<Shape>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Headless {
    /// The command line for the report.
    pub(crate) fn command(&self) -> String {
        let Self { tries, replicas, deployments, pods_each, idle_seconds, .. } = self;
        let only: Vec<&str> = self.only.iter().map(|one| one.name()).collect();
        let only = if only.len() == Shape::ALL.len() { String::new() } else { format!(" --only {}", only.join(",")) };
        format!(
            "gitcd-bench headless{only} --tries {tries} --replicas {replicas} --deployments {deployments} --pods-each {pods_each} --idle-seconds {idle_seconds}"
        )
    }
}

impl Args {
    /// The path of gitcd, if given.
    pub(crate) fn gitcd(&self) -> Option<&Path> {
        self.gitcd.as_deref()
    }

    /// Threads of the client.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Finds the program for a server of this kind.
    pub(crate) fn program(&self, kind: Kind) -> Result<Program> {
        let (given, more) = match kind {
            Kind::Gitcd => (&self.gitcd, &self.gitcd_arg),
            Kind::Etcd => (&self.etcd, &self.etcd_arg),
            Kind::BareWire => return Program::find(kind, None, &[]),
        };
        Program::find(kind, given.as_deref(), more)
    }

    /// The shared options for the report: all that affect measurements, without paths of this machine.
    fn shared(&self) -> String {
        let mut text = format!(" --connections {} --threads {}", self.connections, self.threads);
        for (name, arguments) in [("gitcd", &self.gitcd_arg), ("etcd", &self.etcd_arg)] {
            for argument in arguments {
                write!(text, " --{name}-arg={}", argument.to_string_lossy()).expect("writing to a string cannot fail");
            }
        }
        text
    }
}

impl Idle {
    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        format!("gitcd-bench idle-cost --seconds {}{}", self.seconds, args.shared())
    }
}

impl Kube {
    /// The command line for the report.
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
    /// The amount of load.
    pub(crate) fn plan(&self) -> storage_plan::Plan {
        let &Self { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts, .. } = self;
        storage_plan::Plan { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts }
    }

    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let storage_plan::Plan { revisions, keys, seconds, rate, entries, trickle, start_keys, start_updates, starts } =
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
    /// The command line for the report.
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
}

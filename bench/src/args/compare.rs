//! `gitcd-bench` without a subcommand.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use gitcd_bench::output::Output;

use super::Args;
use crate::driver::{ClientChoice, Clients, Language};
use crate::go_client;
use crate::server::{self, Kind};
use crate::workload::{self, Workload};

/// Seconds of load for each server and client.
const SECONDS: f64 = 60.0;
const QUICK_SECONDS: f64 = 7.0;
const QUIET: Duration = Duration::from_secs(10);
const QUICK_QUIET: Duration = Duration::from_secs(2);

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// Total seconds of load, over all servers, clients and workloads [default: 60 for each server and client]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: Option<u32>,

    /// About 7 seconds of load for each server and client unless given, and no long wait, to check that it works
    #[arg(long)]
    quick: bool,

    /// Only these workloads, comma-separated
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,

    /// Revisions between compactions
    #[arg(long, value_name = "N", default_value_t = 50_000,
          value_parser = clap::value_parser!(i64).range(1_000..=1_000_000_000))]
    pub(crate) compact_every: i64,

    /// The client: Go is etcd's clientv3, as in kube-apiserver
    #[arg(long, value_name = "CLIENT", value_enum, default_value = "both")]
    client: ClientChoice,

    /// The Go client's program [default: next to this program, from `make bench-client`]
    #[arg(long, value_name = "PATH")]
    go_client: Option<PathBuf>,

    /// The servers: two, and perhaps one that shows the limit
    #[arg(long = "compare", hide = true, value_enum, value_delimiter = ',', default_value = "gitcd,etcd,bare-wire")]
    servers: Vec<Kind>,

    #[command(flatten)]
    pub(crate) output: Output,
}

impl Compare {
    /// Total seconds of load.
    pub(crate) fn seconds(&self) -> f64 {
        let sides = (self.servers.len() * self.client.languages().len()) as f64;
        match self.seconds {
            Some(seconds) => f64::from(seconds),
            None if self.quick => QUICK_SECONDS * sides,
            None => SECONDS * sides,
        }
    }

    /// The servers with their names in the report.
    ///
    /// # Errors
    /// If there are not two, or two and the limit.
    pub(crate) fn servers(&self) -> Result<Vec<(Kind, String)>> {
        let good = matches!(&self.servers[..], [_, _] | [_, _, Kind::BareWire]);
        ensure!(good, "--compare requires two servers, and perhaps bare-wire as the third");
        Ok(server::labelled(&self.servers))
    }

    /// The clients to measure with.
    ///
    /// # Errors
    /// If the Go client is one of them and is missing.
    pub(crate) fn clients(&self, args: &Args) -> Result<Clients> {
        let languages = self.client.languages();
        let go = languages.contains(&Language::Go).then(|| go_client::GoProgram::find(self.go_client.as_deref()));
        Ok(Clients { languages, go: go.transpose()?, connections: args.connections, threads: args.threads() })
    }

    /// The wait before disk usage is measured.
    pub(crate) fn quiet(&self) -> Duration {
        if self.quick { QUICK_QUIET } else { QUIET }
    }

    /// Returns the selected workloads.
    ///
    /// # Errors
    /// If a name is unknown; the message lists all names.
    pub(crate) fn workloads(&self) -> Result<Vec<Box<dyn Workload>>> {
        let mut all = workload::all();
        let names: Vec<&str> = all.iter().map(|one| one.spec().name).collect();
        for asked in &self.only {
            let known = names.contains(&asked.as_str());
            ensure!(known, "no workload {asked}; choose from {}", names.join(", "));
        }
        if !self.only.is_empty() {
            all.retain(|one| self.only.iter().any(|asked| asked == one.spec().name));
        }
        Ok(all)
    }

    /// The command line for the report.
    pub(crate) fn command(&self, args: &Args) -> String {
        let only = if self.only.is_empty() { String::new() } else { format!(" --only {}", self.only.join(",")) };
        format!(
            "gitcd-bench --seconds {} --client {}{only} --compact-every {}{}",
            self.seconds(),
            self.client.name(),
            self.compact_every,
            args.shared()
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn an_unknown_workload_is_refused_with_the_names_of_all() {
        let args = Args::parse_from(["gitcd-bench", "--only", "put,nothing"]);
        let error = args.compare.workloads().err().unwrap().to_string();
        assert!(error.contains("no workload nothing") && error.contains("list-500"), "{error}");
        let args = Args::parse_from(["gitcd-bench", "--only", "put,get"]);
        assert_eq!(args.compare.workloads().unwrap().len(), 2);
    }

    #[test]
    fn seconds_are_per_server_and_client_unless_given() {
        let seconds = |more: &[&str]| Args::parse_from([&["gitcd-bench"], more].concat()).compare.seconds();
        assert!((seconds(&[]) - 360.0).abs() < 1e-9);
        assert!((seconds(&["--client", "rust", "--compare", "gitcd,etcd"]) - 120.0).abs() < 1e-9);
        assert!((seconds(&["--seconds", "90"]) - 90.0).abs() < 1e-9);
    }

    #[test]
    fn a_missing_go_client_is_refused_with_both_remedies() {
        let args = Args::parse_from(["gitcd-bench", "--go-client", "/nonexistent/client"]);
        let error = args.compare.clients(&args).err().unwrap().to_string();
        assert!(error.contains("make bench-client") && error.contains("--client rust"), "{error}");
        let args = Args::parse_from(["gitcd-bench", "--client", "rust", "--go-client", "/nonexistent/client"]);
        assert!(args.compare.clients(&args).is_ok());
    }
}

//! The report of the comparison.

use std::fmt::Write;

use serde::Serialize;

use crate::disk;
use crate::machine::Machine;
use crate::run::{Comparison, End, Measured, Side};

use super::table::{Table, bytes_each, count, mebibytes, number};

/// The data of the comparison's report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) connections: usize,
    pub(crate) client_threads: usize,
    pub(crate) compact_every: i64,
    pub(crate) quiet_seconds: f64,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

const NONE: &str = "–";

impl Report {
    /// Whether a workload failed on a server.
    pub(crate) fn failed(&self) -> bool {
        let mut sides = self.measured.workloads.iter().flat_map(|one| &one.sides);
        sides.any(Result::is_err)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        for part in [
            self.throughput().render(),
            self.times().render(),
            self.ends().render(),
            self.lags(),
            self.failures(),
            self.noise(),
        ] {
            if !part.is_empty() {
                text.push_str(&part);
                text.push('\n');
            }
        }
        text
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let [first, second] = self.labels();
        let mut text = format!("## {first} and {second} side by side\n\n");
        let mut say = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        say(format!("- Command: `{}`", self.command));
        say(format!("- Date: {}", self.date));
        say(self.machine.describe());
        say(self.noise());
        let versions = self.measured.servers.iter();
        let versions: Vec<String> = versions.map(|server| format!("{} {}", server.label, server.version)).collect();
        say(format!("- Versions: {}", versions.join(", ")));
        say(String::new());
        say(format!("### Throughput\n\n{}", self.throughput().render()));
        say(format!(
            "Ratio: {first} / {second}; above 1, {first} is faster; in parentheses the lowest and the \
             highest of all turns. Goal: this project's goal for the ratio to etcd."
        ));
        say(format!("\n### Time\n\n{}", self.times().render()));
        say("Milliseconds as measured by the client. CPU: the server's processor time per operation, \
             including work after its turns. Settle: total seconds that it kept working after its \
             turns."
            .to_owned());
        say(format!("\n### Memory and disk\n\n{}", self.ends().render()));
        say(format!(
            "Disk: what `du` counts, {} s after the last load. The servers store different things: gitcd \
             every revision forever, as commits (packs), and the revisions after the last compaction \
             again (journal); etcd only the revisions after the last compaction, in a file that does \
             not shrink, and a log of preallocated files. Written: what the kernel accounts to the \
             process (`write_bytes`), in whole pages.",
            number(self.quiet_seconds)
        ));
        let lags = self.lags();
        if !lags.is_empty() {
            say(format!("\n### Commits\n\n{lags}"));
            say("Lag: age of the oldest uncommitted revision, and the number of uncommitted revisions, \
                 as reported by the server twice a second during the turns. The time line has the \
                 seconds of lag, one value for each second of load."
                .to_owned());
        }
        let failures = self.failures();
        if !failures.is_empty() {
            say(format!("\n### Failures\n\n{failures}"));
        }
        say(format!("\n### How it is measured\n\n{}", self.method()));
        text
    }

    /// The noise of the machine during the turns: with much of it, results are too low.
    fn noise(&self) -> String {
        let sides = self.measured.workloads.iter().flat_map(|one| &one.sides).flatten();
        let (others, load) =
            sides.fold((0.0, 0.0), |(others, load), side| (others + side.other_cpu_seconds, load + side.load_seconds));
        self.machine.noise(others, load)
    }

    fn method(&self) -> String {
        let mut text = format!(
            "\
One program starts both servers with their default settings and fresh data folders on the same file
system, and puts them under load in turns of about a second (first, second, second, first, …), so that
noise on the machine hits both. After each turn it waits until the server is idle, so that neither
works in the other's turn. Every workload starts with an unmeasured warm-up. `put-sustained` is one stretch.

The client is tonic (Rust), the same for both, with {threads} threads, on the same cores as the servers. As in
etcd's own benchmark the clients share several HTTP/2 connections, here {connections}, taking turns; windows
are 1 MiB. Clients work in a closed loop: each request follows the last response. Responses are checked.

Keys are `/registry/<resource>/<namespace>/<name>` in 50 namespaces: 5,000 for puts, gets and updates,
10,000 for lists, 1,000 for watches; creates always add new ones. Values are JSON objects of about 700
bytes in kube-apiserver's compact form, of which a write changes about 30 (generation, replicas, a stamp).
Both servers are compacted every {every} revisions, to the revision {every} before, with
kube-apiserver's transaction on `compact_rev_key`. Writers wait while a watcher is 1,000 events behind.
",
            threads = self.client_threads,
            connections = self.connections,
            every = count(self.compact_every),
        );
        text.push('\n');
        for workload in &self.measured.workloads {
            let Comparison { name, what, clients, .. } = workload;
            writeln!(text, "- `{name}` (clients: {clients}): {what}").expect("writing to a string cannot fail");
        }
        text
    }

    fn labels(&self) -> [&str; 2] {
        let label = |number: usize| {
            let server = self.measured.servers.get(number);
            server.map_or(NONE, |server| server.label.as_str())
        };
        [label(0), label(1)]
    }

    fn throughput(&self) -> Table {
        let [first, second] = self.labels();
        let per_second = |label: &str| format!("{label} /s");
        let mut table = Table::new([
            "workload".to_owned(),
            "unit".to_owned(),
            "clients".to_owned(),
            per_second(first),
            per_second(second),
            "ratio".to_owned(),
            "(turns)".to_owned(),
            "goal".to_owned(),
        ]);
        for workload in &self.measured.workloads {
            let (a, b) = sides(workload);
            let mut row = vec![
                workload.name.to_owned(),
                workload.unit.to_owned(),
                workload.clients.to_string(),
                cell(a, |side| number(side.rate)),
                cell(b, |side| number(side.rate)),
            ];
            if let (Some(a), Some(b)) = (a, b) {
                let ratios = a.turns.iter().zip(&b.turns).map(|(a, b)| a / b);
                let (low, high) =
                    ratios.fold((f64::MAX, 0.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
                row.push(number(a.rate / b.rate));
                row.push(format!("({}–{})", number(low), number(high)));
            } else {
                row.extend([NONE.to_owned(), NONE.to_owned()]);
            }
            row.push(workload.goal.map_or(NONE.to_owned(), |goal| format!("≥ {}", number(goal))));
            table.row(row);
        }
        table
    }

    fn times(&self) -> Table {
        let mut heading = vec!["workload".to_owned()];
        for what in ["p50 ms", "p99 ms", "CPU µs", "settle s", "peak MiB"] {
            for label in self.labels() {
                heading.push(format!("{label} {what}"));
            }
        }
        let mut table = Table::new(heading);
        let columns: [fn(&Side) -> String; 5] = [
            |side| number(side.p50_ms),
            |side| number(side.p99_ms),
            |side| number(side.cpu_seconds * 1e6 / side.operations.max(1) as f64),
            |side| {
                let limit = if side.settled { "" } else { "> " };
                format!("{limit}{:.1}", side.settle_seconds)
            },
            |side| number(side.peak_memory as f64 / 1_048_576.0),
        ];
        for workload in &self.measured.workloads {
            let (a, b) = sides(workload);
            let mut row = vec![workload.name.to_owned()];
            for column in columns {
                row.extend([cell(a, column), cell(b, column)]);
            }
            table.row(row);
        }
        table
    }

    fn ends(&self) -> Table {
        let servers = &self.measured.servers;
        let labels = servers.iter().map(|server| server.label.clone());
        let mut table = Table::new([String::new()].into_iter().chain(labels));
        let mut row = |name: &str, cell: fn(&End) -> String| {
            table.row([name.to_owned()].into_iter().chain(servers.iter().map(cell)));
        };
        row("revisions", |end| count(end.revisions));
        row("compactions", |end| end.compactions.to_string());
        row("peak memory", |end| mebibytes(end.peak_memory));
        row("processor time", |end| format!("{} s", number(end.cpu_seconds)));
        row("written per revision", |end| bytes_each(end.written_bytes, end.revisions));
        row("disk", |end| mebibytes(disk::total(&end.disk)));
        row("disk per revision", |end| bytes_each(disk::total(&end.disk), end.revisions));
        row("of which", |end| {
            let parts = end.disk.iter().map(|part| {
                let each = bytes_each(part.bytes, end.revisions);
                format!("{} {each}", part.name)
            });
            parts.collect::<Vec<_>>().join(", ")
        });
        row("commits", |end| end.commits.map_or(NONE.to_owned(), count));
        row("revisions per commit", |end| per_commit(end.revisions, end.commits));
        table
    }

    fn lags(&self) -> String {
        let mut table = Table::new([
            "workload",
            "revisions",
            "commits",
            "revisions per commit",
            "max lag, s",
            "max lag, revisions",
            "time line, s",
        ]);
        for workload in &self.measured.workloads {
            for side in workload.sides.iter().flatten() {
                // Readers create neither revisions nor commits.
                let Some(commits) = side.commits.filter(|_| side.revisions > 0) else {
                    continue;
                };
                let most = |what: fn(&crate::lag::Sample) -> f64| {
                    let all = side.lag.iter().map(what);
                    all.max_by(f64::total_cmp).map_or(NONE.to_owned(), number)
                };
                table.row([
                    workload.name.to_owned(),
                    count(side.revisions),
                    count(commits),
                    per_commit(side.revisions, Some(commits)),
                    most(|sample| sample.seconds),
                    most(|sample| sample.revisions),
                    time_line(side),
                ]);
            }
        }
        if table.is_empty() { String::new() } else { table.render() }
    }

    fn failures(&self) -> String {
        let mut text = String::new();
        for workload in &self.measured.workloads {
            for (server, side) in self.measured.servers.iter().zip(&workload.sides) {
                if let Err(error) = side {
                    writeln!(text, "- `{}` on {}: {error}", workload.name, server.label)
                        .expect("writing to a string cannot fail");
                }
            }
        }
        text
    }
}

fn sides(workload: &Comparison) -> (Option<&Side>, Option<&Side>) {
    let side = |number: usize| workload.sides.get(number)?.as_ref().ok();
    (side(0), side(1))
}

fn cell(side: Option<&Side>, text: impl Fn(&Side) -> String) -> String {
    side.map_or_else(|| "failed".to_owned(), text)
}

fn per_commit(revisions: i64, commits: Option<u64>) -> String {
    match commits {
        Some(commits) if commits > 0 => number(revisions as f64 / commits as f64),
        _ => NONE.to_owned(),
    }
}

/// The greatest lag of each second.
fn time_line(side: &Side) -> String {
    let mut line: Vec<f64> = Vec::new();
    for sample in &side.lag {
        let second = sample.at as usize;
        if line.len() <= second {
            line.resize(second + 1, 0.0);
        }
        line[second] = line[second].max(sample.seconds);
    }
    let figures: Vec<String> = line.iter().map(|lag| format!("{lag:.1}")).collect();
    figures.join(" ")
}

//! The report of the comparison.

use std::fmt::Write;

use serde::Serialize;

use crate::disk;
use crate::driver::Language;
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
    /// The clients, in the order in which they ran.
    pub(crate) languages: &'static [Language],
    pub(crate) compact_every: i64,
    pub(crate) quiet_seconds: f64,
    #[serde(flatten)]
    pub(crate) measured: Measured,
}

const NONE: &str = "–";

/// Columns of the table of times, one for each of the first servers.
struct Column {
    name: &'static str,
    servers: usize,
    text: fn(&Side) -> String,
}

/// The third server shows the limit of times only.
const COLUMNS: [Column; 5] = [
    Column { name: "p50 ms", servers: 3, text: |side| number(side.p50_ms) },
    Column { name: "p99 ms", servers: 3, text: |side| number(side.p99_ms) },
    Column { name: "CPU µs", servers: 3, text: |side| number(side.cpu_seconds * 1e6 / side.operations.max(1) as f64) },
    Column {
        name: "settle s",
        servers: 2,
        text: |side| {
            let limit = if side.settled { "" } else { "> " };
            format!("{limit}{:.1}", side.settle_seconds)
        },
    },
    Column { name: "peak MiB", servers: 2, text: |side| number(side.peak_memory as f64 / 1_048_576.0) },
];

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
             highest of all turns. Goal: this project's goal for the ratio to etcd, which is set for the Rust client."
        ));
        if let Some(limit) = self.limit() {
            say(format!(
                "The last two columns: {limit}, a server that does nothing but these workloads, as the limit on this wire, and the \
                 part of it that {first} reaches. {limit} has gitcd's listener, HTTP/2 settings, generated services and runtime, \
                 keys in memory, watchers, and one fsync of a log for all writes that wait; no Git, no recovery, no metrics. gitcd \
                 encodes answers to gets and lists without tonic, and can be above it there."
            ));
        }
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
             not shrink, and a log of preallocated files; bare-wire a log that only grows. Written: what the kernel accounts to the \
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
One program starts the servers with their default settings and fresh data folders on the same file
system, and puts them under load in turns of about a second (first, second, …, second, first, …), so that
noise on the machine hits all. After each turn it waits until the server is idle, so that none
works in another's turn. Every workload starts with an unmeasured warm-up. `put-sustained` is one stretch.

{clients}As in
etcd's own benchmark the clients share several HTTP/2 connections, here {connections}, taking turns.
Clients work in a closed loop: each request follows the last response. Responses are checked.

Keys are `/registry/<resource>/<namespace>/<name>` in 50 namespaces: 5,000 for puts, gets and updates,
10,000 for lists, 1,000 for watches; creates always add new ones. Values are JSON objects of about 700
bytes in kube-apiserver's compact form, of which a write changes about 30 (generation, replicas, a stamp).
All servers are compacted every {every} revisions, to the revision {every} before, with
kube-apiserver's transaction on `compact_rev_key`. Writers wait while a watcher is 1,000 events behind.
",
            clients = self.clients(),
            connections = self.connections,
            every = count(self.compact_every),
        );
        text.push('\n');
        for workload in self.measured.workloads.iter().filter(|one| Some(&one.client) == self.languages.first()) {
            let Comparison { name, what, clients, .. } = workload;
            writeln!(text, "- `{name}` (clients: {clients}): {what}").expect("writing to a string cannot fail");
        }
        text
    }

    /// The clients, in the order of the table's rows.
    fn clients(&self) -> String {
        let threads = self.client_threads;
        let each = self.languages.iter().map(|language| match language {
            Language::Go => format!(
                "The Go client is etcd's clientv3 with its package `kubernetes`, as in kube-apiserver, with the defaults of both,\n\
                 `GOMAXPROCS={threads}`, and a process for all turns of a workload.\n"
            ),
            Language::Rust => {
                format!("The Rust client is tonic, with {threads} threads and windows of 1 MiB.\n")
            }
        });
        let each: String = each.collect();
        let after =
            if self.languages.len() > 1 { "One runs after the other, with the same keys and values. " } else { "" };
        format!("{each}{after}Client and servers share the cores. ")
    }

    /// The name of the server that shows the limit, if there is one.
    fn limit(&self) -> Option<&str> {
        self.measured.servers.get(2).map(|server| server.label.as_str())
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
        let mut heading: Vec<String> = ["workload", "client", "unit", "clients"].map(str::to_owned).into();
        heading.extend([format!("{first} /s"), format!("{second} /s")]);
        heading.extend(["ratio", "(turns)", "goal"].map(str::to_owned));
        if let Some(limit) = self.limit() {
            heading.extend([format!("{limit} /s"), format!("{first} of it")]);
        }
        let mut table = Table::new(heading);
        for workload in &self.measured.workloads {
            let [a, b, limit] = [0, 1, 2].map(|number| side(workload, number));
            let mut row = vec![
                workload.name.to_owned(),
                workload.client.name().to_owned(),
                workload.unit.to_owned(),
                workload.clients.to_string(),
                cell(a, |side| number(side.rate)),
                cell(b, |side| number(side.rate)),
            ];
            row.extend(ratio(a, b));
            let goal = workload.goal.filter(|_| workload.client == Language::Rust);
            row.push(goal.map_or(NONE.to_owned(), |goal| format!("≥ {}", number(goal))));
            if self.limit().is_some() {
                row.push(cell(limit, |side| number(side.rate)));
                let part = a.zip(limit).map(|(a, limit)| format!("{:.0} %", 100.0 * a.rate / limit.rate));
                row.push(part.unwrap_or_else(|| NONE.to_owned()));
            }
            table.row(row);
        }
        table
    }

    fn times(&self) -> Table {
        let servers: Vec<&str> = self.measured.servers.iter().map(|server| server.label.as_str()).collect();
        let mut heading = ["workload", "client"].map(str::to_owned).to_vec();
        for column in &COLUMNS {
            heading.extend(servers.iter().take(column.servers).map(|label| format!("{label} {}", column.name)));
        }
        let mut table = Table::new(heading);
        for workload in &self.measured.workloads {
            let mut row = vec![workload.name.to_owned(), workload.client.name().to_owned()];
            for column in &COLUMNS {
                let sides = (0..servers.len().min(column.servers)).map(|number| side(workload, number));
                row.extend(sides.map(|side| cell(side, column.text)));
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
            "client",
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
                    workload.client.name().to_owned(),
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
                    let (name, client) = (workload.name, workload.client.name());
                    writeln!(text, "- `{name}` with the {client} client on {}: {error}", server.label)
                        .expect("writing to a string cannot fail");
                }
            }
        }
        text
    }
}

fn side(workload: &Comparison, number: usize) -> Option<&Side> {
    workload.sides.get(number)?.as_ref().ok()
}

/// The ratio of two rates, and the lowest and the highest ratio of two turns.
fn ratio(a: Option<&Side>, b: Option<&Side>) -> [String; 2] {
    let Some((a, b)) = a.zip(b) else { return [NONE.to_owned(), NONE.to_owned()] };
    let ratios = a.turns.iter().zip(&b.turns).map(|(a, b)| a / b);
    let (low, high) = ratios.fold((f64::MAX, 0.0_f64), |(low, high), ratio| (low.min(ratio), high.max(ratio)));
    [number(a.rate / b.rate), format!("({}–{})", number(low), number(high))]
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

#[cfg(test)]
mod tests;

//! Disk writes of a server that is hardly written to.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::client::put;
use crate::data::CONFIG_MAPS;
use crate::disk::{self, Part};
use crate::lag::{Sample, Sampler};
use crate::machine::Machine;
use crate::report::table::{Table, count, number};
use crate::target::Target;

const INTERVAL: Duration = Duration::from_secs(1);
/// Limit until a server has committed what it was filled with, and its last writes.
const SETTLE_LIMIT: Duration = Duration::from_mins(2);
/// This project's goals.
const GOAL_BYTES_PER_SECOND: f64 = 40.0 * 1024.0;
const GOAL_LAG_SECONDS: f64 = 10.0;

/// The measurement.
#[derive(Debug, Serialize)]
pub(crate) struct IdleCost {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) label: String,
    pub(crate) version: String,
    /// Keys in the directory.
    pub(crate) keys: u64,
    /// Writes, one a second.
    pub(crate) writes: u64,
    /// From the first write until the last one was committed.
    pub(crate) seconds: f64,
    /// Bytes that the kernel accounts to the process.
    pub(crate) written_bytes: u64,
    /// The data folder before and after.
    pub(crate) disk_before: Vec<Part>,
    pub(crate) disk_after: Vec<Part>,
    pub(crate) commits: Option<u64>,
    pub(crate) cpu_seconds: f64,
    pub(crate) lag: Vec<Sample>,
}

/// Fills one directory, waits for the commit, then writes one of its keys every second.
pub(crate) async fn measure(
    target: &Target,
    writes: u64,
    machine: Machine,
    command: String,
    date: String,
) -> Result<IdleCost> {
    let space = CONFIG_MAPS;
    eprintln!("writing {} keys to one directory", space.keys);
    target.fill(space).await?;
    let settled = target.settle(SETTLE_LIMIT).await?;
    anyhow::ensure!(settled.quiet, "not idle within {SETTLE_LIMIT:?} after filling");
    let server = &target.server;
    let disk_before = disk::parts(server.kind, &server.data())?;
    let (before, commits_before) = (target.usage()?, server.commits()?);
    let start = Instant::now();
    let sampler = server.kind.commits_later().then(|| Sampler::start(server.address(), Duration::ZERO));
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut kv = target.client.kv(0);
    for write in 0..writes {
        ticks.tick().await;
        // A step by a prime number visits all keys, each far from the previous one.
        let key = write * 7_919 % space.keys;
        kv.put(put(space.key(key), space.value(key, write + 2, write)))
            .await
            .with_context(|| format!("write {write} failed"))?;
        if (write + 1).is_multiple_of(60) {
            let written = target.usage()?.written.saturating_sub(before.written);
            let rate = written as f64 / start.elapsed().as_secs_f64() / 1024.0;
            eprintln!("{:4} of {writes} writes, {rate:.1} KiB/s", write + 1);
        }
    }
    ticks.tick().await;
    let settled = target.settle(SETTLE_LIMIT).await?;
    anyhow::ensure!(settled.quiet, "not idle within {SETTLE_LIMIT:?} after the last write");
    let lag = match sampler {
        Some(sampler) => sampler.stop().await?,
        None => Vec::new(),
    };
    let after = target.usage()?;
    Ok(IdleCost {
        command,
        date,
        machine,
        label: server.label.clone(),
        version: server.version.clone(),
        keys: space.keys,
        writes,
        seconds: start.elapsed().as_secs_f64(),
        written_bytes: after.written - before.written,
        disk_before,
        disk_after: disk::parts(server.kind, &server.data())?,
        commits: match (server.commits()?, commits_before) {
            (Some(last), Some(first)) => Some(last - first),
            _ => None,
        },
        cpu_seconds: after.cpu.saturating_sub(before.cpu).as_secs_f64(),
        lag,
    })
}

impl IdleCost {
    fn bytes_per_second(&self) -> f64 {
        self.written_bytes as f64 / self.seconds
    }

    fn most(&self, what: fn(&Sample) -> f64) -> Option<f64> {
        self.lag.iter().map(what).max_by(f64::total_cmp)
    }

    /// Whether both goals are met.
    pub(crate) fn good(&self) -> bool {
        self.bytes_per_second() <= GOAL_BYTES_PER_SECOND
            && self.most(|sample| sample.seconds).is_none_or(|lag| lag <= GOAL_LAG_SECONDS)
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let rate = |bytes: f64| format!("{} KiB/s", number(bytes / self.seconds / 1024.0));
        let mut table = Table::new(["measured", self.label.as_str(), "goal"]);
        table.row([
            "written to disk".to_owned(),
            rate(self.written_bytes as f64),
            format!("≤ {} KiB/s", GOAL_BYTES_PER_SECOND / 1024.0),
        ]);
        let grown = disk::total(&self.disk_after) as f64 - disk::total(&self.disk_before) as f64;
        table.row(["folder growth".to_owned(), rate(grown)]);
        for (after, before) in self.disk_after.iter().zip(&self.disk_before) {
            let grown = after.bytes as f64 - before.bytes as f64;
            table.row([format!("· {}", after.name), rate(grown)]);
        }
        if let (Some(seconds), Some(revisions)) =
            (self.most(|sample| sample.seconds), self.most(|sample| sample.revisions))
        {
            let goal = format!("≤ {GOAL_LAG_SECONDS} s");
            table.row(["max commit lag".to_owned(), format!("{} s", number(seconds)), goal]);
            table.row([String::new(), format!("{} revisions", number(revisions))]);
        }
        if let Some(commits) = self.commits {
            table.row(["commits".to_owned(), commits.to_string()]);
        }
        let share = self.cpu_seconds / self.seconds * 100.0;
        table.row(["processor".to_owned(), format!("{} % of a core", number(share))]);
        table.render()
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        format!(
            "\
## One write a second

- Command: `{}`
- Date: {}
- Machine: {} cores, {}, data on {}
- Version: {} {}

{}
{} writes, one a second, to a directory that holds {} keys of about 700 bytes, measured from the first write until
everything was committed ({} s). *Written to disk* is what the kernel accounts to the process (`write_bytes` in
`/proc/<pid>/io`): every page of 4 KiB that it dirtied, also of files removed later. This wears the disk, besides the
file system's own journal. *Folder growth* is the difference of what `du` counts.
",
            self.command,
            self.date,
            self.machine.cores,
            self.machine.kernel,
            self.machine.file_system,
            self.label,
            self.version,
            self.table(),
            self.writes,
            count(self.keys),
            number(self.seconds),
        )
    }
}

//! The report of Git as a database.

use std::fmt::Write;

use crate::server::Kind;
use crate::storage::{Directory, History, Measured, Pace, Starts};

use super::table::{Table, count, number};

/// This project's goals.
const GOAL_BEFORE: f64 = 2048.0;
const GOAL_AFTER: f64 = 1536.0;
const GOAL_SLOWER: f64 = 3.0;
const GOAL_LAG: f64 = 5.0;
const GOAL_PACE: f64 = 8_000.0;
const GOAL_DIRECTORY: f64 = 0.5;
const GOAL_TRICKLE: f64 = 40.0;
const GOAL_GROWTH: f64 = 2048.0;
const GOAL_START: f64 = 3.0;
const GOAL_START_RATIO: f64 = 1.5;

/// A measured value with its goal, if any.
struct Row {
    what: &'static str,
    figure: String,
    goal: Option<(String, bool)>,
}

impl Row {
    fn plain(what: &'static str, figure: String) -> Self {
        Self { what, figure, goal: None }
    }

    fn at_most(what: &'static str, value: f64, goal: f64, unit: &str) -> Self {
        let goal = Some((format!("≤ {} {unit}", number(goal)), value <= goal));
        Self { what, figure: format!("{} {unit}", number(value)), goal }
    }

    fn at_least(what: &'static str, value: f64, goal: f64, unit: &str) -> Self {
        let goal = Some((format!("≥ {} {unit}", number(goal)), value >= goal));
        Self { what, figure: format!("{} {unit}", number(value)), goal }
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new(["measured", "gitcd", "goal"]);
    for row in rows {
        let goal = row.goal.as_ref().map_or_else(String::new, |(text, _)| text.clone());
        table.row([row.what.to_owned(), row.figure.clone(), goal]);
    }
    table.render()
}

impl History {
    fn rows(&self) -> Vec<Row> {
        let each = |bytes: u64| bytes as f64 / self.revisions as f64;
        let milliseconds = |value: f64| format!("{} ms", number(value));
        vec![
            Row::plain("writes a second", number(self.revisions as f64 / self.seconds)),
            Row::plain("revisions", count(self.revisions)),
            Row::plain("commits", count(self.commits)),
            Row::at_most("max commit lag", self.lag_seconds, GOAL_LAG, "s"),
            Row::at_most("on disk, before a repack", each(self.packs_before), GOAL_BEFORE, "B a revision"),
            Row::at_most("on disk, after a repack", each(self.packs_after), GOAL_AFTER, "B a revision"),
            Row::plain("repack of all packs", format!("{} s", number(self.join_seconds))),
            Row::plain("p99 of puts", milliseconds(self.undisturbed.p99_ms)),
            Row::plain("p99 of puts during a repack", milliseconds(self.joining.p99_ms)),
            Row::at_most("· times as long", self.joining.p99_ms / self.undisturbed.p99_ms, GOAL_SLOWER, ""),
            Row::plain("p50 of puts", milliseconds(self.undisturbed.p50_ms)),
            Row::plain("p50 of puts during a repack", milliseconds(self.joining.p50_ms)),
            Row::plain("puts a second", number(self.undisturbed.rate)),
            Row::plain("puts a second during a repack", number(self.joining.rate)),
            Row::plain("git fsck --full", format!("{} s", number(self.fsck_seconds))),
            Row::plain("git log of all commits", format!("{} s", number(self.log_seconds))),
            Row::plain("git clone", format!("{} s", number(self.clone_seconds))),
        ]
    }
}

impl Pace {
    fn rows(&self) -> Vec<Row> {
        vec![
            Row::at_least("revisions a second", self.rate, GOAL_PACE, ""),
            Row::at_most("max commit lag", self.lag_seconds, GOAL_LAG, "s"),
            Row::plain("revisions", count(self.revisions)),
            Row::plain("commits", count(self.commits)),
        ]
    }
}

impl Directory {
    fn rows(&self, writes: u64) -> Vec<Row> {
        let rate = self.trickle_written as f64 / self.trickle_seconds / 1024.0;
        vec![
            Row::plain("puts a second, 50 directories", number(self.many)),
            Row::plain("puts a second, one directory", number(self.one)),
            Row::at_least("· ratio", self.one / self.many, GOAL_DIRECTORY, ""),
            Row::at_most("max commit lag, one directory", self.lag_seconds, GOAL_LAG, "s"),
            Row::at_most("one write a second: written to disk", rate, GOAL_TRICKLE, "KiB/s"),
            Row::plain("· max commit lag", format!("{} s", number(self.trickle_lag_seconds))),
            Row::at_most(
                "· growth after a repack",
                self.trickle_growth as f64 / writes as f64,
                GOAL_GROWTH,
                "B a revision",
            ),
        ]
    }
}

impl Starts {
    fn ratio(&self) -> f64 {
        self.gitcd.median() / self.etcd.median()
    }

    fn table(&self) -> String {
        let mut table = Table::new(["", "gitcd", "etcd", "ratio", "goal"]);
        let range = |seconds: &[f64]| {
            let (least, most) = seconds.iter().fold((f64::MAX, 0.0_f64), |(a, b), &s| (a.min(s), b.max(s)));
            format!("{}–{} s", number(least), number(most))
        };
        let seconds = |value: f64| format!("{} s", number(value));
        let goal = format!("≤ {} s, ≤ {}", number(GOAL_START), number(GOAL_START_RATIO));
        let (own, other) = (&self.gitcd, &self.etcd);
        table.row(["start, median".into(), seconds(own.median()), seconds(other.median()), number(self.ratio()), goal]);
        table.row(["fastest and slowest".into(), range(&own.seconds), range(&other.seconds)]);
        table.row(["revisions".into(), count(own.revisions), count(other.revisions)]);
        table.row(["commits".into(), own.commits.map_or_else(String::new, count)]);
        table.render()
    }

    fn good(&self) -> bool {
        self.gitcd.median() <= GOAL_START && self.ratio() <= GOAL_START_RATIO
    }
}

impl Measured {
    /// Whether all goals of the measured parts are met.
    pub(crate) fn good(&self) -> bool {
        let rows = [
            self.history.as_ref().map(History::rows),
            self.pace.as_ref().map(Pace::rows),
            self.directory.as_ref().map(|directory| directory.rows(self.plan.trickle)),
        ];
        let reached = |row: &Row| row.goal.as_ref().is_none_or(|(_, good)| *good);
        rows.iter().flatten().flatten().all(reached) && self.starts.as_ref().is_none_or(Starts::good)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> String {
        let plan = &self.plan;
        let mut text = String::new();
        let mut part = |title: String, table: String, how: String| {
            write!(text, "### {title}\n\n{table}\n{how}\n").expect("writing to a string cannot fail");
        };
        if let Some(history) = &self.history {
            let how = format!(
                "JSON values of {} bytes in 50 directories; 64 clients update random ones of {} keys at full speed, compacted every 50,000 \
                 revisions. *On disk* is the space allocated in `objects`, including indices. `Defragment` repacks all packs into one; \
                 background repacks join only the newest. Puts are from 64 clients at full speed for {} s, and for the duration of a \
                 second repack of all packs. git is stock Git, after the first repack; the clone transfers and checks everything.\n",
                history.value_bytes,
                count(plan.keys),
                plan.seconds,
            );
            part(format!("{} revisions", count(plan.revisions)), table(&history.rows()), how);
        }
        if let Some(pace) = &self.pace {
            let how = format!(
                "`--commit-granularity=revision`, {} writes a second from 64 clients to random ones of {} keys for {} s.\n",
                count(plan.rate),
                count(plan.keys),
                plan.seconds
            );
            part("A commit for each revision".into(), table(&pace.rows()), how);
        }
        if let Some(directory) = &self.directory {
            let how = format!(
                "{} keys in one directory, and as many in 50; 64 clients update random ones at full speed, in turns. Then one \
                 write a second, {} of them. *Written to disk* is what the kernel accounts to the process.\n",
                count(plan.entries),
                count(plan.trickle)
            );
            part(format!("A directory of {}", count(plan.entries)), table(&directory.rows(plan.trickle)), how);
        }
        if let Some(starts) = &self.starts {
            let how = format!(
                "From the start of the process to its first response, with {} keys and {} earlier updates, in gitcd with a commit for each; \
                 both were stopped gracefully and started {} times in turns. Files are in the page cache. gitcd {}, {} {}.\n",
                count(plan.start_keys),
                count(plan.start_updates),
                plan.starts,
                starts.gitcd.version,
                Kind::Etcd.name(),
                starts.etcd.version,
            );
            part("Start".into(), starts.table(), how);
        }
        text
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        format!(
            "\
## Git as a database

- Command: `{command}`
- Date: {date}
{machine}
- Version: gitcd {version}

{tables}",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            version = self.version,
            tables = self.tables(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine::Machine;
    use crate::storage_plan::Plan;

    fn measured(rate: f64, growth: i64) -> Measured {
        let plan = Plan {
            revisions: 1_000_000,
            keys: 20_000,
            seconds: 60,
            rate: 8_500,
            entries: 50_000,
            trickle: 100,
            start_keys: 100_000,
            start_updates: 0,
            starts: 1,
        };
        Measured {
            command: "gitcd-bench storage".into(),
            date: "today".into(),
            machine: Machine::look(Path::new(".")),
            version: "1".into(),
            plan,
            history: None,
            pace: Some(Pace { rate, revisions: 10, commits: 10, lag_seconds: 1.0 }),
            directory: Some(Directory {
                one: 5.0,
                many: 10.0,
                lag_seconds: 1.0,
                trickle_seconds: 100.0,
                trickle_written: 100 * 40 * 1024,
                trickle_lag_seconds: 60.0,
                trickle_growth: growth,
            }),
            starts: None,
        }
    }

    #[test]
    fn all_goals_of_what_was_measured_count() {
        assert!(measured(8_000.0, 204_800).good());
        assert!(!measured(7_999.0, 204_800).good());
        assert!(!measured(8_000.0, 204_900).good());
    }

    #[test]
    fn a_part_that_was_not_measured_is_not_in_the_section() {
        let section = measured(9_000.0, 1).section();
        assert!(
            section.contains("### A commit for each revision") && section.contains("### A directory of 50,000"),
            "{section}"
        );
        assert!(!section.contains("### Start"), "{section}");
    }
}

//! The report of the memory measurement.

use crate::disk;
use crate::memory::{Case, Measured, Plan, Side};

use super::table::{Table, count, mebibytes, number};

/// This project's goal for peak memory, relative to etcd's.
const GOAL: f64 = 1.0;
/// The least value that a ratio is computed from.
const SMALLEST: f64 = 0.01;

impl Measured {
    /// Whether the goal is met.
    pub(crate) fn good(&self) -> bool {
        self.cases.iter().all(Case::good)
    }

    /// The tables, and the noise of the machine.
    pub(crate) fn tables(&self) -> String {
        let tables = self.cases.iter().map(|case| format!("{}\n\n{}\n", case.title(), case.table()));
        format!("{}{}\n", tables.collect::<String>(), self.noise())
    }

    fn noise(&self) -> String {
        let sides = || self.cases.iter().flat_map(|case| &case.sides);
        let others = sides().map(|side| side.other_cpu_seconds).sum();
        let load = sides().map(|side| side.fill_seconds + side.update_seconds).sum();
        self.machine.noise(others, load)
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let sides = self.cases.first().map_or(&[][..], |case| &case.sides);
        let versions: Vec<String> = sides.iter().map(|side| format!("{} {}", side.label, side.version)).collect();
        let cases =
            self.cases.iter().map(|case| format!("### {}\n\n{}\n{}\n", case.title(), case.table(), case.method()));
        format!(
            "\
## Memory

- Command: `{command}`
- Date: {date}
{machine}
{noise}
- Versions: {versions}

{cases}*Peak memory* is the highest resident memory (`VmHWM` in `/proc/<pid>/status`) until the server was idle; its two kinds
are the highest of samples taken twice a second (`RssAnon`, `RssFile`), possibly at different moments. *PSS* counts pages that
several processes share in part (`Pss` in `/proc/<pid>/smaps_rollup`). etcd maps its database: touched pages count until the
kernel needs the memory.
",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            noise = self.noise(),
            versions = versions.join(", "),
            cases = cases.collect::<String>(),
        )
    }
}

impl Case {
    /// Only a compacted server has a goal.
    fn goal(&self) -> Option<f64> {
        self.plan.compact_every.map(|_| GOAL)
    }

    fn good(&self) -> bool {
        let ratio = self.ratio(|side| side.peak as f64);
        self.goal().zip(ratio).is_none_or(|(goal, ratio)| ratio <= goal)
    }

    fn ratio(&self, what: fn(&Side) -> f64) -> Option<f64> {
        let [first, second] = &self.sides[..] else { return None };
        // A server that is idle at once has no time to compare with.
        (what(second) >= SMALLEST).then(|| what(first) / what(second))
    }

    fn title(&self) -> String {
        let Plan { keys, updates, compact_every } = self.plan;
        match compact_every {
            Some(_) => format!("{} keys, compacted", count(keys)),
            None => format!("{} revisions of {} keys, never compacted", count(keys + updates), count(keys)),
        }
    }

    fn method(&self) -> String {
        let Plan { keys, updates, compact_every } = self.plan;
        let puts = format!(
            "One server after the other accepts {} puts of new keys and {} puts to random ones of them, from 64 clients\n\
             at full speed",
            count(keys),
            count(updates)
        );
        let compacted = match compact_every {
            Some(every) => {
                let every = count(every);
                format!(
                    ", and is compacted every {every} revisions to the revision {every} before, with kube-apiserver's\n\
                     transaction"
                )
            }
            None => ", and is not compacted: all revisions can still be read and watched".to_owned(),
        };
        let each = count(keys.div_ceil(crate::data::NAMESPACES));
        format!(
            "{puts}{compacted}. Keys and values are those of the comparison above, {each} keys in each of 50 directories.\n"
        )
    }

    fn table(&self) -> String {
        let labels = self.sides.iter().map(|side| side.label.clone());
        let ends = ["ratio", "goal"].map(str::to_owned);
        let mut table = Table::new([String::new()].into_iter().chain(labels).chain(ends));
        let mut row = |name: &str, text: fn(f64) -> String, what: fn(&Side) -> f64, goal: &str| {
            let cells = self.sides.iter().map(|side| text(what(side)));
            let ratio = self.ratio(what).map_or_else(String::new, number);
            table.row([name.to_owned()].into_iter().chain(cells).chain([ratio, goal.to_owned()]));
        };
        let bytes: fn(f64) -> String = |bytes| mebibytes(bytes as u64);
        let seconds: fn(f64) -> String = |seconds| format!("{} s", number(seconds));
        let goal = self.goal().map_or_else(String::new, |goal| format!("≤ {}", number(goal)));
        row("peak memory", bytes, |side| side.peak as f64, &goal);
        row("· heap and stacks", bytes, |side| side.peak_anonymous as f64, "");
        row("· mapped files", bytes, |side| side.peak_file as f64, "");
        row("peak with all keys", bytes, |side| side.peak_filled as f64, "");
        row("memory when idle", bytes, |side| side.rest as f64, "");
        row("· PSS", bytes, |side| side.rest_share as f64, "");
        row("time for keys", seconds, |side| side.fill_seconds, "");
        row("time for updates", seconds, |side| side.update_seconds, "");
        row("time until idle", seconds, |side| side.settle_seconds, "");
        row("processor time", seconds, |side| side.cpu_seconds, "");
        row("disk", bytes, |side| disk::total(&side.disk) as f64, "");
        row("revisions", |revisions| count(revisions as i64), |side| side.revisions as f64, "");
        row("compactions", |compactions| count(compactions as u64), |side| side.compactions as f64, "");
        table.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn side(label: &str, peak: u64) -> Side {
        Side {
            label: label.into(),
            version: "1".into(),
            peak_filled: 1,
            peak: peak << 20,
            peak_anonymous: 1,
            peak_file: 1,
            rest: 1,
            rest_share: 3 << 20,
            fill_seconds: 1.0,
            update_seconds: 1.0,
            settle_seconds: 1.0,
            cpu_seconds: 1.0,
            other_cpu_seconds: 0.0,
            revisions: 400_004,
            compactions: 3,
            commits: None,
            disk: Vec::new(),
            samples: Vec::new(),
        }
    }

    fn measured(gitcd: u64, etcd: u64) -> Measured {
        Measured {
            command: "gitcd-bench memory".into(),
            date: "today".into(),
            machine: Machine::look(std::path::Path::new(".")),
            cases: vec![
                Case {
                    plan: Plan { keys: 100_000, updates: 300_000, compact_every: Some(100_000) },
                    sides: vec![side("gitcd", gitcd), side("etcd", etcd)],
                },
                Case {
                    plan: Plan { keys: 5_000, updates: 245_000, compact_every: None },
                    sides: vec![side("gitcd", 900), side("etcd", 300)],
                },
            ],
        }
    }

    #[test]
    fn as_much_memory_as_etcd_is_good_and_more_is_not() {
        assert!(measured(300, 300).good());
        assert!(!measured(301, 300).good());
    }

    #[test]
    fn the_section_has_both_cases_with_their_peaks_and_ratios() {
        let section = measured(150, 300).section();
        assert!(section.starts_with("## Memory\n"), "{section}");
        let peaks: Vec<Vec<&str>> = section
            .lines()
            .filter(|line| line.starts_with("| peak memory "))
            .map(|row| row.split('|').map(str::trim).skip(2).take(4).collect())
            .collect();
        assert_eq!(peaks, [["150 MiB", "300 MiB", "0.50", "≤ 1.00"], ["900 MiB", "300 MiB", "3.00", ""]]);
        assert!(section.contains("### 100,000 keys, compacted\n"), "{section}");
        assert!(section.contains("2,000 keys in each of 50 directories"), "{section}");
        assert!(section.contains("### 250,000 revisions of 5,000 keys, never compacted\n"), "{section}");
        assert!(section.contains("| · PSS ") && section.contains("3.00 MiB"), "{section}");
    }
}

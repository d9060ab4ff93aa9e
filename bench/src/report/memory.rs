//! The report of the memory measurement.

use crate::disk;
use crate::memory::{Measured, Side};

use super::table::{Table, count, mebibytes, number};

/// This project's goal for peak memory, relative to etcd's.
const GOAL: f64 = 1.0;

impl Measured {
    /// Whether the goal is met.
    pub(crate) fn good(&self) -> bool {
        self.ratio(|side| side.peak as f64).is_none_or(|ratio| ratio <= GOAL)
    }

    fn ratio(&self, what: fn(&Side) -> f64) -> Option<f64> {
        let [first, second] = &self.sides[..] else { return None };
        Some(what(first) / what(second))
    }

    /// The table, and the noise of the machine.
    pub(crate) fn tables(&self) -> String {
        format!("{}\n{}\n", self.table(), self.noise())
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
        row("peak memory", bytes, |side| side.peak as f64, &format!("≤ {}", number(GOAL)));
        row("· heap and stacks", bytes, |side| side.peak_anonymous as f64, "");
        row("· mapped files", bytes, |side| side.peak_file as f64, "");
        row("peak with all keys", bytes, |side| side.peak_filled as f64, "");
        row("memory when idle", bytes, |side| side.rest as f64, "");
        row("time for keys", seconds, |side| side.fill_seconds, "");
        row("time for updates", seconds, |side| side.update_seconds, "");
        row("time until idle", seconds, |side| side.settle_seconds, "");
        row("processor time", seconds, |side| side.cpu_seconds, "");
        row("disk", bytes, |side| disk::total(&side.disk) as f64, "");
        row("revisions", |revisions| count(revisions as i64), |side| side.revisions as f64, "");
        row("compactions", |compactions| count(compactions as u64), |side| side.compactions as f64, "");
        table.render()
    }

    fn noise(&self) -> String {
        let others = self.sides.iter().map(|side| side.other_cpu_seconds).sum();
        let load = self.sides.iter().map(|side| side.fill_seconds + side.update_seconds).sum();
        self.machine.noise(others, load)
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let versions: Vec<String> = self.sides.iter().map(|side| format!("{} {}", side.label, side.version)).collect();
        format!(
            "\
## Memory with {keys} keys

- Command: `{command}`
- Date: {date}
{machine}
{noise}
- Versions: {versions}

{table}
One server after the other accepts {keys} puts of new keys and {updates} puts to random ones of them, from 64 clients
at full speed, and is compacted every {every} revisions to the revision {every} before, with kube-apiserver's
transaction. Keys and values are those of the comparison above, {each} keys in each of 50 directories. *Peak memory* is
the highest resident memory (`VmHWM` in `/proc/<pid>/status`) until the server was idle; its two kinds are the highest
of samples taken twice a second (`RssAnon`, `RssFile`), possibly at different moments. etcd maps its database: touched
pages count until the kernel needs the memory.
",
            keys = count(self.plan.keys),
            updates = count(self.plan.updates),
            every = count(self.plan.compact_every),
            each = count(self.plan.keys / crate::data::NAMESPACES),
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            noise = self.noise(),
            versions = versions.join(", "),
            table = self.table(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::memory::Plan;

    fn side(label: &str, peak: u64) -> Side {
        Side {
            label: label.into(),
            version: "1".into(),
            peak_filled: 1,
            peak: peak << 20,
            peak_anonymous: 1,
            peak_file: 1,
            rest: 1,
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
            plan: Plan { keys: 100_000, updates: 300_000, compact_every: 100_000 },
            sides: vec![side("gitcd", gitcd), side("etcd", etcd)],
        }
    }

    #[test]
    fn as_much_memory_as_etcd_is_good_and_more_is_not() {
        assert!(measured(300, 300).good());
        assert!(!measured(301, 300).good());
    }

    #[test]
    fn the_section_has_both_peaks_their_ratio_and_what_was_written() {
        let section = measured(150, 300).section();
        assert!(section.starts_with("## Memory with 100,000 keys\n"), "{section}");
        let row = section.lines().find(|line| line.starts_with("| peak memory ")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[2..6], ["150 MiB", "300 MiB", "0.50", "≤ 1.00"]);
        assert!(section.contains("2,000 keys in each of 50 directories"), "{section}");
    }
}

//! The report of growth.

use crate::chart::Chart;
use crate::growth::{Both, KeyCounts, Lists, Measured, Star, WatcherCounts};

use super::table::{Table, count, mebibytes, number};

/// This project's goals: the rate with the most keys, of that with the fewest;
const GOAL_KEYS: f64 = 0.9;
/// p99 beside a list, in terms of that alone;
const GOAL_LIST: f64 = 2.0;
/// the rate with the most watchers, of that with the fewest.
const GOAL_WATCHERS: f64 = 0.7;

impl Measured {
    /// Whether the goals are met.
    pub(crate) fn good(&self) -> bool {
        let keys = self.keys.as_ref().is_none_or(|keys| keys.change().gitcd >= GOAL_KEYS);
        let lists = self.lists.as_ref().is_none_or(|lists| lists.slower().gitcd <= GOAL_LIST);
        keys && lists && self.watchers.as_ref().is_none_or(|watchers| watchers.change().gitcd >= GOAL_WATCHERS)
    }

    /// The tables.
    pub(crate) fn tables(&self) -> String {
        self.parts(false)
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        format!(
            "\
## How cost grows

- Command: `{}`
- Date: {}
{}
- Versions: {}

{}gitcd and etcd are measured in turns, first, second, second, first, …, each with a fresh folder; after each turn the server
becomes idle, for two minutes at most. Client and servers share the cores.
",
            self.command,
            self.date,
            self.machine.describe(),
            self.versions.join(", "),
            self.parts(true),
        )
    }

    fn parts(&self, pictures: bool) -> String {
        let mut parts = Vec::new();
        let mut add = |heading: &str, picture: &str, table: String, method: String| {
            parts.push(format!("### {heading}\n\n{table}\n"));
            if pictures && !picture.is_empty() {
                parts.push(format!("![{heading}](images/{picture}.svg)\n\n"));
            }
            if pictures {
                parts.push(format!("{method}\n\n"));
            }
        };
        if let Some(keys) = &self.keys {
            add("Number of keys", "growth-keys", keys.table(), keys.method(self.plan.seconds));
        }
        if let Some(lists) = &self.lists {
            add("A long list", "", lists.table(), lists.method());
        }
        if let Some(watchers) = &self.watchers {
            add("Number of watchers", "growth-watchers", watchers.table(), watchers.method());
        }
        if !self.stars.is_empty() {
            add("Number of branches", "growth-branches", star_table(&self.stars), self.star_method());
        }
        parts.concat()
    }

    /// The curves, each with the name of its file.
    pub(crate) fn charts(&self) -> Vec<(&'static str, String)> {
        let mut charts = Vec::new();
        if let Some(KeyCounts(counts)) = &self.keys {
            let line = |name, of: fn(&Both<f64>) -> f64| (name, counts.iter().map(|one| of(&one.rate)).collect());
            let chart = Chart {
                title: "Puts from 64 clients, by number of keys",
                x: "keys",
                y: "puts/s",
                points: counts.iter().map(|one| one.keys as f64).collect(),
                lines: vec![line("gitcd", |rate| rate.gitcd), line("etcd", |rate| rate.etcd)],
            };
            charts.push(("growth-keys", chart.svg()));
        }
        if let Some(WatcherCounts(counts)) = &self.watchers {
            let line = |name, of: fn(&Both<f64>) -> f64| (name, counts.iter().map(|one| of(&one.rate)).collect());
            let chart = Chart {
                title: "Puts from 64 clients, by number of watchers",
                x: "watchers, each of one key",
                y: "puts/s",
                points: counts.iter().map(|one| one.watchers as f64).collect(),
                lines: vec![line("gitcd", |rate| rate.gitcd), line("etcd", |rate| rate.etcd)],
            };
            charts.push(("growth-watchers", chart.svg()));
        }
        if !self.stars.is_empty() {
            let line = |name, of: fn(&Star) -> f64| (name, self.stars.iter().map(of).collect());
            let chart = Chart {
                title: "From a put on one branch of a star to its event on another",
                x: "branches",
                y: "ms",
                points: self.stars.iter().map(|one| one.branches as f64).collect(),
                lines: vec![line("p50", |star| star.p50), line("p99", |star| star.p99)],
            };
            charts.push(("growth-branches", chart.svg()));
        }
        charts
    }

    fn star_method(&self) -> String {
        let plan = &self.plan;
        format!(
            "One `gitcd serve` for each branch pushes it to a bare repository on the same disk and pulls `cluster/data`, to which a\n\
             `gitcd pull` merges all of them. {} creates a second in all, for {} s, go to all branches but one in turn, and each arrives\n\
             on every branch; times are from the start of the put to the watch event on the remaining branch. All servers share the\n\
             cores. *Settled* is from the last put until every branch had all keys. Processor time is that of the merge, and of all\n\
             programs together, for each write.",
            plan.branch_rate, plan.seconds
        )
    }
}

/// The last rate as a part of the first.
fn change<'a>(mut rates: impl Iterator<Item = &'a Both<f64>> + Clone) -> Both<f64> {
    let last = rates.clone().last().copied().unwrap_or_default();
    let first = rates.next().copied().unwrap_or_default();
    Both { gitcd: last.gitcd / first.gitcd, etcd: last.etcd / first.etcd }
}

impl KeyCounts {
    fn change(&self) -> Both<f64> {
        change(self.0.iter().map(|one| &one.rate))
    }

    fn table(&self) -> String {
        let mut table = Table::new([
            "keys",
            "gitcd /s",
            "(turns)",
            "etcd /s",
            "(turns)",
            "ratio",
            "gitcd p99 ms",
            "etcd p99 ms",
            "gitcd memory",
            "etcd memory",
        ]);
        let turns = |range: [f64; 2]| format!("({}–{})", number(range[0]), number(range[1]));
        for one in &self.0 {
            table.row([
                count(one.keys),
                number(one.rate.gitcd),
                turns(one.range.gitcd),
                number(one.rate.etcd),
                turns(one.range.etcd),
                number(one.rate.ratio()),
                number(one.p99.gitcd),
                number(one.p99.etcd),
                mebibytes(one.memory.gitcd),
                mebibytes(one.memory.etcd),
            ]);
        }
        let change = self.change();
        table.row(["last of first", &number(change.gitcd), "", &number(change.etcd)]);
        table.row(["goal", &format!("≥ {}", number(GOAL_KEYS))]);
        table.render()
    }

    fn method(&self, seconds: u64) -> String {
        let most = self.0.last().map_or(0, |one| one.keys);
        let each = count(most.div_ceil(crate::data::NAMESPACES));
        format!(
            "64 clients put random ones of these keys at full speed, for {seconds} s in turns of each server, which is compacted every 50,000\n\
             revisions. The keys are in 50 directories, in the end {each} in each. Memory is resident memory after the load."
        )
    }
}

impl Lists {
    fn slower(&self) -> Both<f64> {
        let of = |side: &crate::growth::Listed| side.beside.p99 / side.alone.p99;
        Both { gitcd: of(&self.sides.gitcd), etcd: of(&self.sides.etcd) }
    }

    fn table(&self) -> String {
        let mut table = Table::new(["", "gitcd", "etcd", "goal"]);
        let Both { gitcd, etcd } = &self.sides;
        let slower = self.slower();
        let mut row = |name: &str, [own, other]: [String; 2], goal: &str| {
            table.row([name.to_owned(), own, other, goal.to_owned()]);
        };
        row("a list", [gitcd, etcd].map(|side| format!("{} s", number(side.seconds))), "");
        row("lists", [gitcd, etcd].map(|side| count(side.lists)), "");
        row("p99 alone", [gitcd, etcd].map(|side| format!("{} ms", number(side.alone.p99))), "");
        row("p99 beside lists", [gitcd, etcd].map(|side| format!("{} ms", number(side.beside.p99))), "");
        row("· times as long", [slower.gitcd, slower.etcd].map(number), &format!("≤ {}", number(GOAL_LIST)));
        row("memory before", [gitcd, etcd].map(|side| mebibytes(side.before)), "");
        row("peak beside lists", [gitcd, etcd].map(|side| mebibytes(side.peak)), "");
        table.render()
    }

    fn method(&self) -> String {
        format!(
            "A client lists {} keys ({}) in one response, again and again, beside {} puts and as many gets a second to 5,000 other keys.\n\
             Latency is that of the puts and gets, from the moment at which each was due.",
            count(self.keys),
            mebibytes(self.sides.gitcd.bytes),
            self.rate
        )
    }
}

impl WatcherCounts {
    fn change(&self) -> Both<f64> {
        change(self.0.iter().map(|one| &one.rate))
    }

    fn table(&self) -> String {
        let mut table = Table::new([
            "watchers",
            "gitcd puts/s",
            "etcd puts/s",
            "ratio",
            "gitcd p99 ms",
            "etcd p99 ms",
            "gitcd events",
            "etcd events",
        ]);
        for one in &self.0 {
            table.row([
                count(one.watchers),
                number(one.rate.gitcd),
                number(one.rate.etcd),
                number(one.rate.ratio()),
                number(one.p99.gitcd),
                number(one.p99.etcd),
                count(one.events.gitcd),
                count(one.events.etcd),
            ]);
        }
        let change = self.change();
        table.row(["last of first", &number(change.gitcd), &number(change.etcd)]);
        table.row(["goal", &format!("≥ {}", number(GOAL_WATCHERS))]);
        table.render()
    }

    fn method(&self) -> String {
        let most = self.0.iter().map(|one| one.watchers).max().unwrap_or(0);
        format!(
            "Each watcher waits for one key, 100 on each stream. 64 clients put random ones of {} keys at full speed; an event arrives for\n\
             each put to a watched key, which is checked.",
            count(most.max(1_000))
        )
    }
}

fn star_table(stars: &[Star]) -> String {
    let mut table = Table::new([
        "branches",
        "p50 ms",
        "p99 ms",
        "merges/s",
        "settled s",
        "merge CPU ms a write",
        "all CPU ms a write",
    ]);
    for one in stars {
        table.row([
            count(one.branches),
            number(one.p50),
            number(one.p99),
            number(one.merges),
            number(one.settled),
            number(one.merge_cpu * 1e3),
            number(one.cpu * 1e3),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::{KeyCount, WatcherCount};
    use crate::growth_plan::Plan;
    use crate::machine::Machine;

    fn measured(rates: [f64; 2], watched: [f64; 2]) -> Measured {
        let both = |gitcd| Both { gitcd, etcd: 50.0 };
        let count = |(keys, rate)| KeyCount {
            keys,
            rate: both(rate),
            range: Both { gitcd: [1.0, 2.0], etcd: [1.0, 2.0] },
            p99: both(1.0),
            memory: Both::default(),
        };
        let watch =
            |(watchers, rate)| WatcherCount { watchers, rate: both(rate), p99: both(1.0), events: Both::default() };
        Measured {
            command: "gitcd-bench growth".into(),
            date: "today".into(),
            machine: Machine::look(std::path::Path::new(".")),
            versions: vec!["gitcd 1".into()],
            plan: Plan {
                keys: vec![10, 100],
                listed: 10,
                watchers: vec![1, 10],
                branches: vec![2],
                branch_rate: 1,
                seconds: 1,
            },
            keys: Some(KeyCounts([10, 100].into_iter().zip(rates).map(count).collect())),
            lists: None,
            watchers: Some(WatcherCounts([1, 10].into_iter().zip(watched).map(watch).collect())),
            stars: Vec::new(),
        }
    }

    #[test]
    fn flat_curves_are_good_and_falling_ones_are_not() {
        assert!(measured([100.0, 91.0], [100.0, 71.0]).good());
        assert!(!measured([100.0, 89.0], [100.0, 71.0]).good());
        assert!(!measured([100.0, 91.0], [100.0, 69.0]).good());
    }

    #[test]
    fn the_section_has_a_picture_for_each_curve() {
        let measured = measured([100.0, 91.0], [100.0, 71.0]);
        let (section, charts) = (measured.section(), measured.charts());
        assert_eq!(charts.len(), 2);
        for (name, svg) in charts {
            assert!(section.contains(&format!("(images/{name}.svg)")) && svg.starts_with("<svg"), "{section}");
        }
        assert!(section.contains("| last of first |     0.91 |"), "{section}");
        assert!(!measured.tables().contains("images"));
    }
}

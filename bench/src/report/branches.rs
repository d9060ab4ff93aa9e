//! The report of replication between branches.

use crate::branches::{Measured, Topology};

use super::table::{Table, count, number};

/// This project's goals, in milliseconds.
const GOAL_P50: f64 = 100.0;
const GOAL_P99: f64 = 500.0;
const GOAL_MERGE: f64 = 250.0;
const GOAL_UNCHANGED: f64 = 5.0;

impl Measured {
    /// The tables, and the noise of the machine.
    pub(crate) fn tables(&self) -> String {
        format!("{}\n{}\n{}\n", self.propagation_table(), self.merge_table(), self.noise())
    }

    fn propagation_table(&self) -> String {
        let mut table = Table::new(["between them", "p50 ms", "p90 ms", "p99 ms", "max ms", "writes", "merges"]);
        for one in &self.propagations {
            let times = [one.p50, one.p90, one.p99, one.max].map(number);
            let counts = [count(one.writes), count(one.merges as u64)];
            table.row([one.topology.what().to_owned()].into_iter().chain(times).chain(counts));
        }
        table.row([
            "goal".to_owned(),
            format!("≤ {}", number(GOAL_P50)),
            String::new(),
            format!("≤ {}", number(GOAL_P99)),
        ]);
        table.render()
    }

    fn merge_table(&self) -> String {
        let mut table = Table::new(["what", "ms", "(rounds)", "goal ms"]);
        let merges = &self.merges;
        for (what, times, goal) in [
            ("merge and commit", &merges.joins, Some(GOAL_MERGE)),
            ("including the fetch", &merges.pulls, None),
            ("a pull without changes", &merges.unchanged, Some(GOAL_UNCHANGED)),
        ] {
            let mut sorted = times.clone();
            sorted.sort_by(f64::total_cmp);
            let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { continue };
            let goal = goal.map_or_else(String::new, |goal| format!("≤ {}", number(goal)));
            table.row([
                what.to_owned(),
                number(sorted[sorted.len() / 2]),
                format!("({}–{})", number(*first), number(*last)),
                goal,
            ]);
        }
        table.render()
    }

    fn noise(&self) -> String {
        let others: f64 = self.propagations.iter().map(|one| one.other_cpu_seconds).sum();
        let load: f64 = self.propagations.iter().map(|one| one.seconds).sum();
        self.machine.noise(others + self.merges.other_cpu_seconds, load + self.merges.seconds)
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let plan = &self.plan;
        format!(
            "\
## Branches that follow one another

- Command: `{command}`
- Date: {date}
{machine}
{noise} (a server between the two branches counts as other)
- Version: gitcd {version}

### Propagation

{propagation}
From the start of a put on one branch to the receipt of its watch event on another, two hops away, while both sides accept
{rate} writes a second for {seconds} s; each write updates an existing object, each key once. Client and servers share the cores,
and every server writes its own journal and commits.

{hows}
### A merge of {changes} changes on each side into {keys} keys

{merges}
Half of the changed objects are changed on both sides, in different fields. The time is the server's own
(`gitcd_remote_merge_seconds_total`, `gitcd_remote_pull_seconds`): finding the changes, merging their fields, the journal, and the
commit in Git. Median, fastest and slowest of {rounds} rounds. A fetch takes longer the more commits there are.
",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            noise = self.noise(),
            version = self.version,
            propagation = self.propagation_table(),
            rate = plan.rate,
            seconds = plan.seconds,
            hows = hows(),
            changes = count(plan.changes),
            keys = count(plan.keys),
            merges = self.merge_table(),
            rounds = plan.rounds,
        )
    }
}

fn hows() -> String {
    let mut table = Table::new(["between them", "how"]);
    Topology::ALL.iter().for_each(|one| table.row([one.what(), one.how()]));
    table.render()
}

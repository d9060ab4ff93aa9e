//! The report of a headless cluster beside a central control plane.

use std::fmt::Write as _;

use crate::headless::cost::{self, Cost};
use crate::headless::{Measured, Outcome, Shape};

use super::table::{Table, count, mebibytes};

/// This project's goals.
const GOAL_SECONDS: f64 = 1.5;
const GOAL_RATIO: f64 = 3.0;
const GOAL_READY_SECONDS: f64 = 60.0;
const GOAL_IDLE_MIB: u64 = 550;
const GOAL_IDLE_SHARE: f64 = 0.08;

const STRING: &str = "writing to a string does not fail";

impl Measured {
    fn central(&self) -> Option<&Outcome> {
        self.outcomes.iter().find(|one| one.shape == Shape::Central)
    }

    /// All tables.
    pub(crate) fn tables(&self) -> String {
        [self.idle(), self.single(), self.many()].into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// Whether all goals are met.
    pub(crate) fn good(&self) -> bool {
        let central = self.central().and_then(Outcome::median);
        let others = self.outcomes.iter().filter(|one| one.shape != Shape::Central);
        others.into_iter().all(|one| {
            let median = one.median().unwrap_or_default();
            let ratio = central.map_or(0.0, |central| median / central);
            let idle = cost::total(&one.idle);
            median <= GOAL_SECONDS
                && ratio <= GOAL_RATIO
                && one.ready <= GOAL_READY_SECONDS
                && idle.memory <= GOAL_IDLE_MIB << 20
                && idle.share <= GOAL_IDLE_SHARE
        })
    }

    fn idle(&self) -> Option<String> {
        let mut table = Table::new(["control plane", "program", "processes", "memory", "% of a core"]);
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        for one in self.outcomes.iter().filter(|one| !one.idle.is_empty()) {
            let all = cost::total(&one.idle);
            for Cost { program, processes, memory, share } in one.idle.iter().chain([&all]) {
                let processes = processes.to_string();
                table.row([one.shape.name(), program, &processes, &mebibytes(*memory), &percent(*share)]);
            }
        }
        if table.is_empty() {
            return None;
        }
        table.row(["goal", "all", "", &format!("≤ {GOAL_IDLE_MIB} MiB"), &format!("≤ {}", GOAL_IDLE_SHARE * 100.0)]);
        Some(table.render())
    }

    fn single(&self) -> Option<String> {
        let mut table = Table::new(["control plane", "ready s", "p50 s", "fastest", "slowest", "× central"]);
        let central = self.central().and_then(Outcome::median);
        for one in &self.outcomes {
            let Some(median) = one.median() else { continue };
            let least = one.bound.iter().copied().fold(f64::INFINITY, f64::min);
            let most = one.bound.iter().copied().fold(0.0, f64::max);
            table.row([
                one.shape.name().to_owned(),
                format!("{:.1}", one.ready),
                format!("{median:.2}"),
                format!("{least:.2}"),
                format!("{most:.2}"),
                central.map_or_else(String::new, |central| format!("{:.1}", median / central)),
            ]);
        }
        if table.is_empty() {
            return None;
        }
        table.row([
            "goal".to_owned(),
            format!("≤ {GOAL_READY_SECONDS}"),
            format!("≤ {GOAL_SECONDS}"),
            String::new(),
            String::new(),
            format!("≤ {GOAL_RATIO}"),
        ]);
        Some(table.render())
    }

    fn many(&self) -> Option<String> {
        let mut table = Table::new(["control plane", "all bound s", "settled after s", "commits", "merge commits"]);
        for one in &self.outcomes {
            let Some(burst) = one.burst else { continue };
            table.row([
                one.shape.name().to_owned(),
                format!("{:.1}", burst.all_bound),
                format!("{:.1}", burst.settled),
                count(burst.commits),
                count(burst.merges),
            ]);
        }
        (!table.is_empty()).then(|| table.render())
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let plan = &self.plan;
        let mut text = format!(
            "## A headless cluster and a central control plane\n\n- Command: `{}`\n- Date: {}\n{}\n",
            self.command,
            self.date,
            self.machine.describe()
        );
        if let Some(idle) = self.idle() {
            write!(
                text,
                "
### While nothing happens

{idle}
Measured for {seconds} s, half a minute after the control plane became ready from an empty folder. Memory is the sum of `Pss` in
`/proc/<pid>/smaps_rollup`: a page that several processes share, such as the code of the three kube-apiservers, counts once.
*trishanku* is the supervisor.
",
                seconds = plan.idle_seconds,
            )
            .expect(STRING);
        }
        if let Some(single) = self.single() {
            write!(
                text,
                "
### {replicas} pods of one Deployment

{single}
From the start of `kubectl create deployment --replicas={replicas}` at the desk until a watch there shows the last pod bound to a node: {tries} tries, each after
all branches have settled. In a headless cluster the Deployment propagates from the desk's branch to that of kube-controller-manager, its pods from there to that
of kube-scheduler, and back. *Ready* starts from an empty folder, with new certificates and repositories. All processes share the cores.
",
                replicas = plan.replicas,
                tries = plan.tries,
            )
            .expect(STRING);
        }
        if let Some(many) = self.many() {
            write!(
                text,
                "
### {deployments} Deployments of {each} pods at once

{many}
All three take about as long: kube-controller-manager limits itself to 20 requests a second (`--kube-api-qps`), which was not varied.
*Settled* is from the last bound pod until no branch moved any more. Commits are those of the desk's branch, which then has them all.
",
                deployments = plan.deployments,
                each = plan.pods_each,
            )
            .expect(STRING);
        }
        text
    }
}

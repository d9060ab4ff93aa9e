//! The report of a headless cluster beside a central control plane.

use crate::headless::{Measured, Outcome, Shape};

use super::table::{Table, count};

/// This project's goals.
const GOAL_SECONDS: f64 = 1.5;
const GOAL_RATIO: f64 = 3.0;
const GOAL_READY_SECONDS: f64 = 60.0;

impl Measured {
    fn central(&self) -> Option<&Outcome> {
        self.outcomes.iter().find(|one| one.shape == Shape::Central)
    }

    /// Both tables.
    pub(crate) fn tables(&self) -> String {
        format!("{}\n{}", self.single(), self.many())
    }

    /// Whether all goals are met.
    pub(crate) fn good(&self) -> bool {
        let central = self.central().map(Outcome::median);
        let others = self.outcomes.iter().filter(|one| one.shape != Shape::Central);
        others.into_iter().all(|one| {
            let ratio = central.map_or(0.0, |central| one.median() / central);
            one.median() <= GOAL_SECONDS && ratio <= GOAL_RATIO && one.ready <= GOAL_READY_SECONDS
        })
    }

    fn single(&self) -> String {
        let mut table = Table::new(["control plane", "ready s", "p50 s", "fastest", "slowest", "× central"]);
        for one in &self.outcomes {
            let least = one.bound.iter().copied().fold(f64::INFINITY, f64::min);
            let most = one.bound.iter().copied().fold(0.0, f64::max);
            let ratio =
                self.central().map_or_else(String::new, |central| format!("{:.1}", one.median() / central.median()));
            table.row([
                one.shape.name().to_owned(),
                format!("{:.1}", one.ready),
                format!("{:.2}", one.median()),
                format!("{least:.2}"),
                format!("{most:.2}"),
                ratio,
            ]);
        }
        table.row([
            "goal".to_owned(),
            format!("≤ {GOAL_READY_SECONDS}"),
            format!("≤ {GOAL_SECONDS}"),
            String::new(),
            String::new(),
            format!("≤ {GOAL_RATIO}"),
        ]);
        table.render()
    }

    fn many(&self) -> String {
        let mut table = Table::new(["control plane", "all bound s", "settled after s", "commits", "merge commits"]);
        for one in &self.outcomes {
            table.row([
                one.shape.name().to_owned(),
                format!("{:.1}", one.all_bound),
                format!("{:.1}", one.settled),
                count(one.commits),
                count(one.merges),
            ]);
        }
        table.render()
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let plan = &self.plan;
        format!(
            "\
## A headless cluster and a central control plane

- Command: `{command}`
- Date: {date}
{machine}

### {replicas} pods of one Deployment

{single}
From the start of `kubectl create deployment --replicas={replicas}` at the desk until a watch there shows the last pod bound to a node: {tries} tries, each after
all branches have settled. In a headless cluster the Deployment propagates from the desk's branch to that of kube-controller-manager, its pods from there to that
of kube-scheduler, and back. *Ready* starts from an empty folder, with new certificates and repositories. All processes share the cores.

### {deployments} Deployments of {each} pods at once

{many}
All three take about as long: kube-controller-manager limits itself to 20 requests a second (`--kube-api-qps`), which was not varied.
*Settled* is from the last bound pod until no branch moved any more. Commits are those of the desk's branch, which then has them all.
",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            replicas = plan.replicas,
            single = self.single(),
            tries = plan.tries,
            deployments = plan.deployments,
            each = plan.pods_each,
            many = self.many(),
        )
    }
}

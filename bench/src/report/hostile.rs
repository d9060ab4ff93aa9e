//! The report of the load beside hostile requests.

use gitcd_bench::table::{Table, count, mebibytes, number};

use crate::hostile::Measured;

/// This project's goal: the p99 beside a hostile request, in terms of the p99 alone.
const GOAL: f64 = 3.0;

impl Measured {
    /// Whether the goal is reached beside every kind of request.
    pub(crate) fn good(&self) -> bool {
        self.beside.iter().all(|one| one.latency.p99 <= GOAL * self.alone.p99)
    }

    /// The table.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new(["attack", "p50 ms", "p99 ms", "max ms", "p99 / baseline", "answered", "memory"]);
        let times = |latency: &crate::steady::Latency| [latency.p50, latency.p99, latency.max].map(number);
        table.row(["none".to_owned()].into_iter().chain(times(&self.alone)));
        for one in &self.beside {
            let ratio = number(one.latency.p99 / self.alone.p99);
            let more = [ratio, count(one.answered), mebibytes(one.memory)];
            table.row([one.attack.what().to_owned()].into_iter().chain(times(&one.latency)).chain(more));
        }
        table.row(["goal", "", "", "", &format!("≤ {}", number(GOAL))]);
        table.render()
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        format!(
            "\
## Latency under hostile requests

- Command: `{}`
- Date: {}
{}
- Version: gitcd {}

{}
{} puts and as many gets per second to a store with 2,000 objects, for {} s during each attack, and as long before it. The time
of a request counts from the moment at which it was due. The load generator and the attackers run on the same cores as the
server. Memory is the peak of the server and the programs that it started.
",
            self.command,
            self.date,
            self.machine.describe(),
            self.version,
            self.table(),
            self.plan.rate,
            self.plan.seconds,
        )
    }
}

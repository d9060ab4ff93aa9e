//! The results, for readers.

use gitcd_bench::machine::Machine;
use gitcd_bench::table::{Table, count, mebibytes, number};
use serde::Serialize;

use crate::contestant::Kind;
use crate::run::Side;
use crate::turn::{Plan, Stretch, Turn};

/// A whole measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The command line, without paths of this machine.
    pub command: String,
    /// Start, UTC.
    pub date: String,
    /// The machine.
    pub machine: Machine,
    /// The plan of each turn.
    pub plan: Plan,
    /// The contestants and their turns.
    pub sides: Vec<Side>,
}

/// Explains the contestant, if it takes part.
const STRIPPED: &str =
    "`go-stripped` is Go's controller-runtime without `managedFields` in its cache, as in the framework.\n";

/// A metric that is compared: less is better.
struct Figure {
    name: &'static str,
    of: fn(&Turn) -> f64,
    /// The highest acceptable ratio to kube-runtime, and to Go's controller-runtime.
    goals: [Option<f64>; 2],
}

const FIGURES: [Figure; 9] = [
    Figure { name: "time to all ready", of: |turn| turn.making.seconds, goals: [Some(0.75), Some(0.6)] },
    Figure { name: "CPU until all ready", of: |turn| turn.making.cpu_seconds, goals: [None, None] },
    Figure { name: "time of a restart", of: |turn| turn.restart.seconds, goals: [Some(1.0), Some(1.0)] },
    Figure { name: "CPU of a restart", of: |turn| turn.restart.cpu_seconds, goals: [None, None] },
    Figure { name: "time of a resync", of: |turn| turn.resync.seconds, goals: [Some(1.0), Some(1.0)] },
    Figure { name: "CPU of a resync", of: |turn| turn.resync.cpu_seconds, goals: [None, None] },
    Figure { name: "memory when all are ready", of: |turn| turn.made.resident as f64, goals: [Some(0.4), Some(0.4)] },
    Figure { name: "memory after a restart", of: |turn| turn.restarted.resident as f64, goals: [Some(0.4), Some(0.4)] },
    Figure { name: "peak memory", of: Turn::peak, goals: [Some(0.4), Some(0.4)] },
];

impl Turn {
    fn peak(&self) -> f64 {
        self.making_peak.max(self.restart_peak) as f64
    }
}

impl Side {
    /// Returns the mean over all turns.
    fn mean(&self, of: impl Fn(&Turn) -> f64) -> f64 {
        self.turns.iter().map(of).sum::<f64>() / self.turns.len().max(1) as f64
    }
}

type Column = (&'static str, fn(&Side, &Plan) -> String);

impl Report {
    /// Formats all tables.
    pub fn tables(&self) -> String {
        [self.ratios(), self.making(), self.restarts(), self.resyncs(), self.memory()].join("\n")
    }

    fn side(&self, kind: Kind) -> Option<&Side> {
        self.sides.iter().find(|side| side.kind == kind)
    }

    fn ratios(&self) -> String {
        let Some(framework) = self.side(Kind::Framework) else { return String::new() };
        let others: Vec<_> = self.sides.iter().filter(|side| side.kind != Kind::Framework).collect();
        if others.is_empty() {
            return String::new();
        }
        let mut heading = vec!["framework, compared with".to_owned()];
        for other in &others {
            heading.extend([other.kind.name().to_owned(), "(turns)".to_owned(), "goal".to_owned()]);
        }
        let mut table = Table::new(heading);
        for Figure { name, of, goals } in FIGURES {
            let mut row = vec![name.to_owned()];
            for other in &others {
                let ratios = framework.turns.iter().zip(&other.turns).map(|(ours, theirs)| of(ours) / of(theirs));
                let (low, high) = ratios.fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
                let goal = goals[usize::from(other.kind != Kind::KubeRuntime)];
                row.push(number(framework.mean(of) / other.mean(of)));
                row.push(format!("({}–{})", number(low), number(high)));
                row.push(goal.map_or_else(|| "–".to_owned(), |goal| format!("≤ {}", number(goal))));
            }
            table.row(row);
        }
        table.render()
    }

    fn table(&self, what: &str, columns: &[Column]) -> String {
        let mut table = Table::new([what].into_iter().chain(columns.iter().map(|(name, _)| *name)));
        for side in &self.sides {
            let name = side.kind.name().to_owned();
            table.row([name].into_iter().chain(columns.iter().map(|(_, text)| text(side, &self.plan))));
        }
        table.render()
    }

    fn making(&self) -> String {
        self.table(
            "from nothing to ready",
            &[
                ("seconds", |side, _| number(side.mean(|turn| turn.making.seconds))),
                ("objects /s", |side, plan| number(plan.objects as f64 / side.mean(|turn| turn.making.seconds))),
                ("CPU µs per object", |side, plan| {
                    number(side.mean(|turn| turn.making.cpu_seconds) * 1e6 / plan.objects as f64)
                }),
                ("reconciles per object", |side, plan| {
                    number(side.mean(|turn| turn.making.reconciles as f64) / plan.objects as f64)
                }),
                ("applies per object", |side, plan| {
                    number(side.mean(|turn| turn.making.requests.applies as f64) / plan.objects as f64)
                }),
                ("statuses per object", |side, plan| {
                    number(side.mean(|turn| turn.making.requests.statuses as f64) / plan.objects as f64)
                }),
                ("calls per reconcile", |side, _| calls_per_reconcile(side, |turn| turn.making)),
                ("failures", |side, _| failures(side, |turn| turn.making)),
            ],
        )
    }

    fn restarts(&self) -> String {
        self.table(
            "restart",
            &[
                ("seconds", |side, _| number(side.mean(|turn| turn.restart.seconds))),
                ("CPU s", |side, _| number(side.mean(|turn| turn.restart.cpu_seconds))),
                ("reconciles", |side, _| number(side.mean(|turn| turn.restart.reconciles as f64))),
                ("lists", |side, _| number(side.mean(|turn| turn.restart.requests.lists as f64))),
                ("watches", |side, _| number(side.mean(|turn| turn.restart.requests.watches as f64))),
                ("calls per reconcile", |side, _| calls_per_reconcile(side, |turn| turn.restart)),
                ("writes", |side, _| writes(side, |turn| turn.restart)),
                ("failures", |side, _| failures(side, |turn| turn.restart)),
            ],
        )
    }

    fn resyncs(&self) -> String {
        self.table(
            "resync",
            &[
                ("seconds", |side, _| number(side.mean(|turn| turn.resync.seconds))),
                ("CPU µs per reconcile", |side, _| {
                    let reconciles = side.mean(|turn| turn.resync.reconciles as f64);
                    number(side.mean(|turn| turn.resync.cpu_seconds) * 1e6 / reconciles)
                }),
                ("reconciles", |side, _| number(side.mean(|turn| turn.resync.reconciles as f64))),
                ("calls per reconcile", |side, _| calls_per_reconcile(side, |turn| turn.resync)),
                ("writes", |side, _| writes(side, |turn| turn.resync)),
                ("failures", |side, _| failures(side, |turn| turn.resync)),
            ],
        )
    }

    fn memory(&self) -> String {
        self.table(
            "memory",
            &[
                ("ready", |side, _| mebibytes(side.mean(|turn| turn.made.resident as f64) as u64)),
                ("heap + stacks", |side, _| mebibytes(side.mean(|turn| turn.made.own as f64) as u64)),
                ("peak", |side, _| mebibytes(side.mean(|turn| turn.making_peak as f64) as u64)),
                ("restarted", |side, _| mebibytes(side.mean(|turn| turn.restarted.resident as f64) as u64)),
                ("heap + stacks", |side, _| mebibytes(side.mean(|turn| turn.restarted.own as f64) as u64)),
                ("peak", |side, _| mebibytes(side.mean(|turn| turn.restart_peak as f64) as u64)),
            ],
        )
    }

    /// Formats the section of the document.
    pub fn section(&self) -> String {
        let Plan { objects, concurrency, rest, .. } = self.plan;
        format!(
            "\
## The framework, kube-runtime and controller-runtime

- Command: `{command}`
- Date: {date}
{machine}
- Versions: trishanku-framework {version}, kube-runtime {kube}, controller-runtime {go}

{ratios}
A ratio below 1 means that the framework needs less; in parentheses, the lowest and the highest of the {rounds} rounds. The goal is this project's target.

{making}
{restarts}
{resyncs}
The goal of a resync is at most 10 s for all objects, without a write.

{memory}
### How it is measured

One controller is written three times: on the framework, on bare kube-runtime (`Controller`, reflectors, one watch for each kind), and on
Go's controller-runtime (in kubebuilder's layout). Each object owns a ConfigMap and a Secret. The controller applies them by server-side apply if the
cached ones differ, and then the condition `Ready` to the status if it is absent. None sends events, elects a leader or adds finalizers;
each reconciles {concurrency} objects at a time, without a rate limit, with uncompressed JSON, and otherwise with the defaults of its library.
{stripped}
The framework's objects contain more: a label of their set, and a digest of what was applied, by which fields are removed that are no longer desired.

In each turn a contestant is alone with a new kube-apiserver on gitcd, with {count} objects and nothing else. It is started, and makes all objects ready; idles for
{rest} s; is stopped and started again, which changes nothing; idles; and resyncs all objects. Turns come in the order of the tables, then in the
opposite one. After each turn, objects, contents, owners and statuses are verified.

- *Ready* is measured in kube-apiserver's audit log: from the start of the process to the last object's first status. So are calls: gets and writes of objects, not lists
  and watches.
- A *restart* ends when as many reconciles have ended as there are objects; *resync* likewise, from the first of them. Both are measured by the contestant's own
  `controller_runtime_reconcile_total`, polled every 10 ms.
- *Memory* is resident memory, including the program; *heap + stacks* is the private part of it. CPU is that of the contestant, which shares the cores with kube-apiserver
  and gitcd.
",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            version = env!("CARGO_PKG_VERSION"),
            kube = kube_version(),
            go = go_version(),
            ratios = self.ratios(),
            rounds = self.sides.first().map_or(0, |side| side.turns.len()),
            making = self.making(),
            restarts = self.restarts(),
            resyncs = self.resyncs(),
            stripped = if self.side(Kind::GoStripped).is_some() { STRIPPED } else { "" },
            memory = self.memory(),
            count = count(objects),
            rest = rest.as_secs(),
        )
    }
}

fn calls_per_reconcile(side: &Side, of: fn(&Turn) -> Stretch) -> String {
    number(side.mean(|turn| of(turn).requests.of_objects() as f64) / side.mean(|turn| of(turn).reconciles as f64))
}

fn writes(side: &Side, of: fn(&Turn) -> Stretch) -> String {
    count(side.turns.iter().map(|turn| of(turn).requests.writes()).sum::<u64>())
}

fn failures(side: &Side, of: fn(&Turn) -> Stretch) -> String {
    count(side.turns.iter().map(|turn| of(turn).failed).sum::<u64>())
}

/// Returns the version that everything is built with.
fn kube_version() -> &'static str {
    let lock = include_str!("../../../Cargo.lock");
    let found = lock.split_once("name = \"kube-runtime\"\nversion = \"").and_then(|(_, rest)| rest.split_once('"'));
    found.map_or("unknown", |(version, _)| version)
}

fn go_version() -> &'static str {
    let module = include_str!("../go/go.mod");
    let found = module.split_once("sigs.k8s.io/controller-runtime ").and_then(|(_, rest)| rest.split_once('\n'));
    found.map_or("unknown", |(version, _)| version)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_contestant_is_explained_where_it_is_one() {
        let plan = Plan { objects: 1, concurrency: 1, rest: Duration::ZERO, resync: Duration::ZERO };
        let section = |kinds: &[Kind]| {
            let sides = kinds.iter().map(|kind| Side { kind: *kind, turns: Vec::new() }).collect();
            let machine = Machine::look(Path::new("/"));
            Report { command: String::new(), date: String::new(), machine, plan, sides }.section()
        };
        let explained = "of its library.\n`go-stripped` is Go's controller-runtime without `managedFields` in its cache, as in the framework.\n\nThe";
        assert!(section(&[Kind::Go, Kind::GoStripped]).contains(explained));
        let without = section(&[Kind::Go]);
        assert!(without.contains("of its library.\n\nThe") && !without.contains("go-stripped"), "{without}");
    }

    #[test]
    fn versions_are_those_of_the_locks() {
        for version in [kube_version(), go_version()] {
            assert!(version.trim_start_matches('v').starts_with(|first: char| first.is_ascii_digit()), "{version}");
        }
    }
}

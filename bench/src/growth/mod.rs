//! How cost grows: with the number of keys, the length of a list, the number of watchers, and the number of branches.
//!
//! gitcd and etcd are measured beside each other, in turns; branches are gitcd's alone. Each part has servers of its own.

mod keys;
mod list;
mod star;
mod watchers;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

#[cfg(test)]
pub(crate) use self::keys::KeyCount;
pub(crate) use self::keys::KeyCounts;
pub(crate) use self::list::{Listed, Lists};
pub(crate) use self::star::Star;
#[cfg(test)]
pub(crate) use self::watchers::WatcherCount;
pub(crate) use self::watchers::WatcherCounts;
use crate::args::Args;
use crate::growth_plan::{Part, Plan};
use crate::load::Tally;
use crate::machine::Machine;
use crate::server::{Kind, Server};
use crate::target::Target;

/// Revisions between compactions.
const COMPACT_EVERY: i64 = 50_000;
/// How long a server may work after a load before the other's turn begins in any case.
const SETTLE_LIMIT: Duration = Duration::from_mins(2);

/// The measurement.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// The command line, without paths of this machine.
    pub(crate) command: String,
    /// Start, UTC.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    /// The version of each server.
    pub(crate) versions: Vec<String>,
    pub(crate) plan: Plan,
    pub(crate) keys: Option<KeyCounts>,
    pub(crate) lists: Option<Lists>,
    pub(crate) watchers: Option<WatcherCounts>,
    pub(crate) stars: Vec<Star>,
}

/// A value of each server.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Both<T> {
    pub(crate) gitcd: T,
    pub(crate) etcd: T,
}

impl Both<f64> {
    /// The ratio to etcd.
    pub(crate) fn ratio(self) -> f64 {
        self.gitcd / self.etcd
    }
}

/// The servers of a part.
struct Pair(Both<Target>);

impl Pair {
    async fn start(args: &Args, folder: &Path, compact_every: i64) -> Result<Self> {
        let start = async |kind: Kind| {
            let server: Server = args.program(kind)?.start(kind.name().to_owned(), folder).await?;
            Target::connect(server, args.connections, compact_every).await
        };
        Ok(Self(Both { gitcd: start(Kind::Gitcd).await?, etcd: start(Kind::Etcd).await? }))
    }

    fn versions(&self) -> Vec<String> {
        let servers = [&self.0.gitcd, &self.0.etcd].map(|target| &target.server);
        servers.map(|server| format!("{} {}", server.label, server.version)).into()
    }

    /// Calls `measure` with one server after the other, and then in the opposite order, `rounds` times in all. Returns the results
    /// of each server.
    async fn in_turns<T>(&self, rounds: usize, measure: impl AsyncFn(&Target) -> Result<T>) -> Result<Both<Vec<T>>> {
        let mut all = Both { gitcd: Vec::new(), etcd: Vec::new() };
        for round in 0..rounds {
            for turn in 0..2 {
                if (round + turn) % 2 == 0 {
                    all.gitcd.push(measure(&self.0.gitcd).await?);
                } else {
                    all.etcd.push(measure(&self.0.etcd).await?);
                }
            }
        }
        Ok(all)
    }

    async fn stop(self) -> Result<()> {
        self.0.gitcd.server.stop().await?;
        self.0.etcd.server.stop().await?;
        Ok(())
    }
}

/// Runs the parts one after the other.
///
/// # Errors
/// If a server fails.
pub(crate) async fn run(args: &Args, folder: &Path, parts: &[Part], measured: &mut Measured) -> Result<()> {
    let (plan, versions) = (measured.plan.clone(), &mut measured.versions);
    for part in Part::ALL.into_iter().filter(|part| parts.contains(part)) {
        eprintln!("{}:", part.name());
        match part {
            Part::Keys => measured.keys = Some(keys::measure(args, folder, &plan, versions).await?),
            Part::List => measured.lists = Some(list::measure(args, folder, &plan, versions).await?),
            Part::Watchers => measured.watchers = Some(watchers::measure(args, folder, &plan, versions).await?),
            Part::Branches => {
                for branches in plan.branches.iter().copied() {
                    measured.stars.push(star::measure(args, folder, branches, &plan).await?);
                }
            }
        }
    }
    Ok(())
}

fn total<'t>(turns: impl IntoIterator<Item = &'t Tally>) -> Tally {
    let mut total = Tally::new();
    turns.into_iter().for_each(|turn| total.add(turn));
    total
}

/// Returns the p99 in milliseconds.
fn p99(tally: &Tally) -> f64 {
    tally.latency.value_at_quantile(0.99) as f64 / 1e6
}

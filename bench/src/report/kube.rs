//! The report of the measurement behind kube-apiserver.

use crate::kube::{Compared, Measured, Side};

use super::table::{Table, count, mebibytes, number};

/// A store should be no slower than etcd, within the noise of the machine.
const GOAL: f64 = 1.0;

impl Measured {
    /// The tables, and the noise of the machine.
    pub(crate) fn tables(&self) -> String {
        format!("{}\n{}\n{}\n{}\n", self.rates(), self.times(), self.ends(), self.noise())
    }

    fn labels(&self) -> Vec<&str> {
        self.outcome.stores.iter().map(|store| store.label.as_str()).collect()
    }

    fn rates(&self) -> String {
        let mut heading = vec!["work".to_owned(), "unit".to_owned(), "clients".to_owned()];
        heading.extend(self.labels().iter().map(|label| format!("{label} /s")));
        heading.extend(["ratio", "(turns)", "goal"].map(str::to_owned));
        let mut table = Table::new(heading);
        for work in &self.outcome.works {
            let mut row = vec![work.name.to_owned(), work.unit.to_owned(), work.clients.to_string()];
            row.extend(work.sides.iter().map(|side| number(side.rate)));
            if let [first, second] = &work.sides[..] {
                let ratios = first.turns.iter().zip(&second.turns).map(|(one, other)| one / other);
                let (low, high) = ratios.fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
                row.push(number(first.rate / second.rate));
                row.push(format!("({}–{})", number(low), number(high)));
                row.push(format!("≥ {}", number(GOAL)));
            }
            table.row(row);
        }
        table.render()
    }

    fn times(&self) -> String {
        let columns: [(&str, Cell); 5] = [
            ("p50 ms", |side| number(side.p50_ms)),
            ("p99 ms", |side| number(side.p99_ms)),
            ("CPU µs", |side| number(each(side.store_cpu_seconds, side))),
            ("apiserver CPU µs", |side| number(each(side.apiserver_cpu_seconds, side))),
            ("written KiB", |side| number(side.written_bytes as f64 / 1024.0 / side.operations.max(1) as f64)),
        ];
        let mut heading = vec!["work".to_owned()];
        for (what, _) in columns {
            heading.extend(self.labels().iter().map(|label| format!("{label} {what}")));
        }
        let mut table = Table::new(heading);
        for Compared { name, sides, .. } in &self.outcome.works {
            let mut row = vec![(*name).to_owned()];
            for (_, text) in columns {
                row.extend(sides.iter().map(text));
            }
            table.row(row);
        }
        table.render()
    }

    fn ends(&self) -> String {
        let labels = self.outcome.stores.iter().map(|store| store.label.clone());
        let mut table = Table::new([String::new()].into_iter().chain(labels));
        let mut row = |name: &str, text: fn(&crate::kube::Store) -> String| {
            table.row([name.to_owned()].into_iter().chain(self.outcome.stores.iter().map(text)));
        };
        row("revisions", |store| count(store.revisions));
        row("peak memory", |store| mebibytes(store.peak_memory));
        row("peak memory of kube-apiserver", |store| mebibytes(store.apiserver_peak_memory));
        table.render()
    }

    fn noise(&self) -> String {
        let sides = || self.outcome.works.iter().flat_map(|work| &work.sides);
        let others = sides().map(|side| side.other_cpu_seconds).sum();
        self.machine.noise(others, sides().map(|side| side.load_seconds).sum())
    }

    /// The section of the document.
    pub(crate) fn section(&self) -> String {
        let versions = self.outcome.stores.iter().map(|store| format!("{} {}", store.label, store.version));
        let versions: Vec<String> = versions.chain([format!("Kubernetes {}", self.outcome.kubernetes)]).collect();
        let works: Vec<String> =
            self.outcome.works.iter().map(|work| format!("- `{}`: {}", work.name, work.what)).collect();
        format!(
            "\
## Through kube-apiserver

- Command: `{command}`
- Date: {date}
{machine}
{noise}
- Versions: {versions}

{rates}
Ratio: above 1, {first} is faster; in parentheses the lowest and the highest of all turns.

{times}
Milliseconds as measured by the client. CPU: processor time of the store, and of its kube-apiserver, per operation, including
work after their turns. Written: by the store, per operation, as the kernel accounts it to the process.

{ends}
Each store has a kube-apiserver of its own, both with the same flags: those of `trishanku up`, and limits on requests that
are never reached. Objects are stored as `{media}`. Client, both kube-apiservers and both stores share the cores, so
the store is only a part of the duration of a request. kube-apiserver answers these lists from its cache once it knows that
the cache is up to date.

{objects} ConfigMaps of {bytes} bytes (with what kube-apiserver adds) in 50 namespaces are created, patched, listed and deleted, {rounds} times, after an
unmeasured smaller round. Each kind of work has four turns: first, second, second, first, …; after each turn the store and
its kube-apiserver become idle. {writers} writes are in flight, and fewer lists, over {connections}
HTTP/2 connections with TLS, {threads} threads, without a rate limit. Responses are checked.

{works}
",
            command = self.command,
            date = self.date,
            machine = self.machine.describe(),
            noise = self.noise(),
            versions = versions.join(", "),
            rates = self.rates(),
            first = self.labels().first().unwrap_or(&""),
            times = self.times(),
            ends = self.ends(),
            media = self.plan.media_type,
            objects = count(self.plan.objects),
            bytes = self.outcome.object_bytes,
            rounds = self.plan.rounds,
            writers = self.plan.writers,
            connections = self.plan.connections,
            threads = self.client_threads,
            works = works.join("\n"),
        )
    }
}

type Cell = fn(&Side) -> String;

/// Microseconds per operation.
fn each(seconds: f64, side: &Side) -> f64 {
    seconds * 1e6 / side.operations.max(1) as f64
}

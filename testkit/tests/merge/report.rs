//! Reports of failed cases.

use std::fmt::Write as _;

use serde_json::Value;

use crate::compare::{Difference, differences, normal};
use crate::requests::Request;

/// A case whose result no order of its requests explains.
pub(crate) struct Fault {
    pub(crate) seed: u64,
    /// Equal for cases that differ in the same fields.
    pub(crate) signature: String,
    pub(crate) report: String,
}

/// The result of one order of the requests on one kube-apiserver.
pub(crate) struct Serial {
    /// `true` for a request of B.
    pub(crate) order: Vec<bool>,
    pub(crate) shown: Option<Value>,
    /// The requests that were rejected.
    pub(crate) refused: String,
}

impl Serial {
    fn name(&self) -> String {
        self.order.iter().map(|of_b| if *of_b { 'B' } else { 'A' }).collect()
    }
}

/// A case and its results. Values are as stored.
pub(crate) struct Report<'c> {
    pub(crate) seed: u64,
    pub(crate) kind: &'static str,
    pub(crate) requests: [&'c [Request]; 2],
    pub(crate) base: Option<&'c str>,
    pub(crate) sides: [Option<&'c str>; 2],
    pub(crate) merged: Option<&'c [u8]>,
    pub(crate) serials: Vec<Serial>,
}

impl Report<'_> {
    /// Normalizes a value, for comparisons within the case.
    pub(crate) fn normal(&self, value: Option<&[u8]>) -> Option<Value> {
        let base = self.base.map_or(Value::Null, |base| serde_json::from_str(base).expect("what is stored is JSON"));
        normal(value, &base)
    }

    /// Reports that the merged object has the right content and a wrong generation.
    pub(crate) fn of_generation(&self, reason: &str) -> Fault {
        let report = format!("{}{}", self.head(), self.changes());
        Fault { seed: self.seed, signature: format!("{}: {reason}", self.kind), report }
    }

    /// Reports that the merged object equals none of the serial results.
    pub(crate) fn fault(&self, merged: Option<&Value>) -> Fault {
        let compared = self.serials.iter().map(|serial| (differences(merged, serial.shown.as_ref()), serial));
        let (found, nearest) = compared.min_by_key(|(found, _)| found.len()).expect("there is an order");
        let mut report = self.head();
        let _ = writeln!(report, "  the nearest order is {}:", nearest.name());
        report.push_str(&nearest.refused);
        for Difference { path, merged, serial } in &found {
            let _ = writeln!(
                report,
                "      {path}: merged {}, {} {}",
                show(merged.as_ref()),
                nearest.name(),
                show(serial.as_ref())
            );
        }
        report.push_str(&self.changes());
        let mark = |value: &Option<Value>| if value.is_some() { "x" } else { "-" };
        let paths = found.iter().map(|found| format!("{} {}/{}", found.path, mark(&found.merged), mark(&found.serial)));
        let signature = format!("{}: {}", self.kind, paths.collect::<Vec<_>>().join(", "));
        Fault { seed: self.seed, signature, report }
    }

    fn head(&self) -> String {
        let Self { seed, kind, .. } = self;
        let repeat = "cargo test -p trishanku-testkit --test merge order";
        let mut head = format!("seed {seed}, {kind}\n  TRISHANKU_MERGE_SEED={seed} TRISHANKU_MERGE_CASES=1 {repeat}\n");
        for request in self.requests.into_iter().flatten() {
            let _ = writeln!(head, "    {request}");
        }
        head
    }

    /// Formats the base, and how each of the others differs from it.
    fn changes(&self) -> String {
        let base = self.base.map(str::as_bytes);
        let before = self.normal(base);
        let mut text = format!("  base: {}\n", show(before.as_ref()));
        let [a, b] = self.sides.map(|side| side.map(str::as_bytes));
        let stored = [("A", a), ("B", b), ("merged", self.merged)];
        let normal = stored.map(|(name, value)| (name.to_owned(), self.normal(value)));
        let serials = self.serials.iter().take(2).map(|serial| (serial.name(), serial.shown.clone()));
        for (name, value) in normal.into_iter().chain(serials) {
            let _ = writeln!(text, "  base to {name}:");
            for found in differences(before.as_ref(), value.as_ref()) {
                let _ = writeln!(
                    text,
                    "      {}: {} -> {}",
                    found.path,
                    show(found.merged.as_ref()),
                    show(found.serial.as_ref())
                );
            }
        }
        if std::env::var_os("TRISHANKU_MERGE_VALUES").is_some() {
            for (name, value) in [("base", base)].into_iter().chain(stored) {
                let _ = writeln!(text, "  {name}: {}", value.map_or("(none)".into(), String::from_utf8_lossy));
            }
        }
        text
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or_else(|| "(none)".to_owned(), Value::to_string)
}

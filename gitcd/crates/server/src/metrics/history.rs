//! Metrics of reads of compacted revisions from Git; all are 0 without `--history=git`.

use std::fmt::Error;
use std::sync::atomic::Ordering;

use super::figures::Out;
use crate::api::HistoryCounters;

pub(super) fn encode(counters: &HistoryCounters, out: &mut Out) -> Result<(), Error> {
    let counts = [
        ("gitcd_history_reads", "Ranges at compacted revisions answered from Git", &counters.answered),
        (
            "gitcd_history_refused_reads",
            "Ranges at compacted revisions that Git does not have, or not exactly",
            &counters.refused,
        ),
        ("gitcd_history_failed_reads", "Ranges at compacted revisions that failed or took too long", &counters.failed),
    ];
    for (name, help, counter) in counts {
        out.counter(name, help, counter.load(Ordering::Relaxed) as f64)?;
    }
    let seconds = counters.microseconds.load(Ordering::Relaxed) as f64 / 1e6;
    out.counter("gitcd_history_read_seconds", "Total duration of reads of compacted revisions from Git", seconds)
}

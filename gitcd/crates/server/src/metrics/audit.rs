//! Metrics of audit events; all are 0 unless commits name actors.

use std::fmt::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use gitcd_engine::audit::Counters;

use super::figures::Out;

/// Name and help of a counter, and where it is; `_total` is added to its name.
type Figure = (&'static str, &'static str, fn(&Counters) -> &AtomicU64);

const COUNTERS: &[Figure] = &[
    ("gitcd_audit_events", "Audit events received", |of| &of.events),
    ("gitcd_audit_invalid", "Requests, and lines of the audit log, that were no audit events", |of| &of.invalid),
    ("gitcd_audit_dropped_events", "Audit events dropped at the limit of pending events", |of| &of.dropped),
    ("gitcd_audit_named_revisions", "Revisions committed with the name of their user", |of| &of.named),
    ("gitcd_audit_unnamed_revisions", "Revisions committed without a user", |of| &of.unnamed),
    ("gitcd_audit_late_revisions", "Of these, revisions whose audit event came after the commit", |of| &of.late),
    ("gitcd_audit_ambiguous_revisions", "Of these, revisions that the events of two users matched", |of| &of.ambiguous),
];

pub(super) fn encode(counters: &Counters, out: &mut Out) -> Result<(), Error> {
    for (name, help, counter) in COUNTERS {
        out.counter(name, help, counter(counters).load(Ordering::Relaxed) as f64)?;
    }
    Ok(())
}

//! Counts of health checks and their results.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Results of the health pages.
#[derive(Debug, Default)]
pub struct Health {
    healthy: AtomicU64,
    unhealthy: AtomicU64,
    checks: Mutex<Vec<Check>>,
}

/// A check of `/livez` or `/readyz` that has run at least once.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) last_passed: bool,
}

impl Health {
    /// Counts a response of `/health`.
    pub(crate) fn asked(&self, healthy: bool) {
        let counter = if healthy { &self.healthy } else { &self.unhealthy };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a run of a check.
    pub(crate) fn checked(&self, kind: &'static str, name: &'static str, passed: bool) {
        let mut checks = self.checks.lock();
        let known = checks.iter().position(|check| (check.kind, check.name) == (kind, name));
        let at = known.unwrap_or_else(|| {
            checks.push(Check { kind, name, passed: 0, failed: 0, last_passed: false });
            checks.len() - 1
        });
        let check = &mut checks[at];
        *if passed { &mut check.passed } else { &mut check.failed } += 1;
        check.last_passed = passed;
    }

    /// Returns how often `/health` reported healthy, and how often unhealthy.
    pub(super) fn answers(&self) -> (u64, u64) {
        (self.healthy.load(Ordering::Relaxed), self.unhealthy.load(Ordering::Relaxed))
    }

    pub(super) fn checks(&self) -> Vec<Check> {
        self.checks.lock().clone()
    }
}

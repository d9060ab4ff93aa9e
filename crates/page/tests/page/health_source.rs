//! A source of health that the test sets; `cli/tests/health.rs` has a real one.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use trishanku_page::health::{
    BranchHealth, ComponentHealth, Finding, Health, HealthReport, HealthState, RemoteHealth, StoreSize,
};

/// A source that reports what the test sets.
#[derive(Clone, Default)]
pub(crate) struct HealthSource(Arc<Mutex<HealthReport>>);

impl HealthSource {
    pub(crate) fn of(report: HealthReport) -> Self {
        Self(Arc::new(Mutex::new(report)))
    }

    /// Sets what is reported from now on.
    pub(crate) fn set(&self, report: HealthReport) {
        *self.0.lock() = report;
    }
}

impl Health for HealthSource {
    fn report(&self) -> BoxFuture<'static, HealthReport> {
        std::future::ready(self.0.lock().clone()).boxed()
    }
}

/// Returns a state.
pub(crate) fn state(word: &str, is_good: bool) -> HealthState {
    HealthState { word: word.to_owned(), is_good }
}

/// Returns a report with every part that the page can show.
pub(crate) fn report() -> HealthReport {
    let remote = RemoteHealth {
        name: "origin".to_owned(),
        reference: "refs/heads/desk".to_owned(),
        condition: Some(state("Unreachable", false)),
        lag_commits: Some(1000),
        has_more: true,
        lag_seconds: Some(7300.0),
    };
    let problem = |what: &str, details: &[&str]| Finding {
        what: what.to_owned(),
        details: details.iter().map(ToString::to_string).collect(),
    };
    let branch = BranchHealth {
        name: "kube-scheduler".to_owned(),
        reference: "refs/heads/ks/data".to_owned(),
        state: state("running", false),
        role: Some("writer".to_owned()),
        head: Some("0123456789abcdef".to_owned()),
        revision: Some(42),
        committed_revision: Some(40),
        lag_revisions: Some(2),
        lag_seconds: Some(0.25),
        conflicts: Some(3),
        rejected: Some(1),
        size: Some(StoreSize { bytes: 7 << 20, quota: Some(8 << 20) }),
        restarts: Some(5),
        remotes: vec![remote],
        problems: vec![
            problem("1 file rejected", &["secrets/hushed/<b>\u{202e}"]),
            problem("writes refused", &["hushed: </pre><script>alert(1)</script>"]),
        ],
    };
    let component = ComponentHealth {
        name: "kube-scheduler/gitcd".to_owned(),
        state: state("ready", true),
        uptime_seconds: Some(7300),
        restarts: 5,
    };
    HealthReport {
        state: Some(state("degraded", false)),
        branches: vec![branch],
        components: vec![component],
        problems: vec![problem("kube-scheduler/app: exited with code 1", &["hushed"])],
    }
}

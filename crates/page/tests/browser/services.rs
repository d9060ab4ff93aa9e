//! An undo and a health with every part that their pages can show. Real ones are tested with the command line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gitcd_history::fields::Field;
use trishanku_page::Services;
use trishanku_page::health::{
    BranchHealth, ComponentHealth, Finding, Health, HealthReport, HealthState, RemoteHealth, StoreSize,
};
use trishanku_page::rights::UnrestrictedRights;
use trishanku_page::undo::{Preview, PreviewStep, Undo, UndoError, UndoRequest, Undone, UndoneStep};

/// The ID of the preview.
const PLAN: &str = "the plan";

/// Counts what it is asked to do.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    undone: Arc<AtomicUsize>,
}

impl Scripted {
    /// Returns how often an undo was applied.
    pub(crate) fn undone(&self) -> usize {
        self.undone.load(Ordering::SeqCst)
    }

    /// Returns the services of a user with the right to everything.
    pub(crate) fn services(&self) -> Services {
        let own = Arc::new(self.clone());
        Services { undo: Some(own.clone()), health: Some(own), ..Services::read_only(Arc::new(UnrestrictedRights)) }
    }
}

impl Undo for Scripted {
    fn preview(&self, _request: UndoRequest) -> BoxFuture<'static, Result<Preview, UndoError>> {
        let step = |action: &str, key: &str| PreviewStep {
            action: action.to_owned(),
            object: key.to_owned(),
            ..PreviewStep::default()
        };
        let replicas = Field { path: "spec.replicas".to_owned(), from: Some("5".to_owned()), to: Some("3".to_owned()) };
        let steps = vec![
            PreviewStep {
                fields: vec![replicas],
                stays: vec!["spec.template".to_owned()],
                notes: vec!["it gets a new uid".to_owned()],
                ..step("update", "deployments/shop/web")
            },
            PreviewStep {
                problem: Some("the namespace is gone".to_owned()),
                ..step("blocked", "configmaps/shop/summer-menu")
            },
            PreviewStep { problem: Some("status".to_owned()), ..step("left", "pods/shop/web-65b454cd57-4xk2p") },
        ];
        let summary = "1 object would change, 1 is impossible".to_owned();
        let warnings = vec!["the commit has changes of jane and bob".to_owned()];
        let preview = Preview { steps, changes: 1, summary, warnings, plan: PLAN.to_owned() };
        std::future::ready(Ok(preview)).boxed()
    }

    fn apply(&self, request: UndoRequest, plan: String) -> BoxFuture<'static, Result<Undone, UndoError>> {
        assert_eq!(plan, PLAN, "the form sends the plan that was shown");
        self.undone.fetch_add(1, Ordering::SeqCst);
        let step = |object: &str, outcome: Result<&str, &str>| UndoneStep {
            object: object.to_owned(),
            is_changed: outcome.is_ok(),
            outcome: outcome.map(ToOwned::to_owned).map_err(ToOwned::to_owned),
            notes: Vec::new(),
        };
        let steps = vec![
            step("deployments/shop/web", Ok("updated")),
            step("configmaps/shop/summer-menu", Err("the namespace is gone")),
        ];
        let hint = Some(format!("trishanku undo {}", request.commit));
        std::future::ready(Ok(Undone { steps, commits: vec![request.commit], has_others: true, hint })).boxed()
    }
}

fn state(word: &str, is_good: bool) -> HealthState {
    HealthState { word: word.to_owned(), is_good }
}

impl Health for Scripted {
    fn report(&self) -> BoxFuture<'static, HealthReport> {
        let remote = RemoteHealth {
            name: "origin".to_owned(),
            reference: "refs/heads/kube-controller-manager".to_owned(),
            condition: Some(state("Unreachable", false)),
            lag_commits: Some(12),
            lag_seconds: Some(7300.0),
            ..RemoteHealth::default()
        };
        let problem = Finding {
            what: "1 file rejected".to_owned(),
            details: vec!["configmaps/shop/winter-menu: the name differs from that of the file".to_owned()],
        };
        let branch = BranchHealth {
            name: "desk".to_owned(),
            reference: "refs/heads/desk".to_owned(),
            state: state("running", true),
            role: Some("writer".to_owned()),
            head: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            revision: Some(4711),
            committed_revision: Some(4710),
            lag_revisions: Some(1),
            lag_seconds: Some(0.2),
            conflicts: Some(1),
            rejected: Some(1),
            size: Some(StoreSize { bytes: 7 << 30, quota: Some(8 << 30) }),
            restarts: Some(1),
            remotes: vec![remote],
            problems: vec![problem.clone()],
        };
        let component = |name: &str, word: &str, is_good: bool| ComponentHealth {
            name: name.to_owned(),
            state: state(word, is_good),
            uptime_seconds: Some(7300),
            restarts: 2,
        };
        let components =
            vec![component("kube-apiserver", "ready", true), component("kube-controller-manager", "exiting", false)];
        let report = HealthReport {
            state: Some(state("degraded", false)),
            branches: vec![branch],
            components,
            problems: vec![problem],
        };
        std::future::ready(report).boxed()
    }
}

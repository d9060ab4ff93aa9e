//! An undo, and a health, with every part that their pages can show. Real ones are tested with the command line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use gitcd_history::fields::Field;
use trishanku_page::Services;
use trishanku_page::rights::UnrestrictedRights;
use trishanku_page::undo::{Preview, PreviewStep, Undo, UndoError, UndoRequest, Undone, UndoneStep};

use crate::health_source::{self, HealthSource};

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
        let health = Arc::new(HealthSource::of(health_source::report()));
        let undo = Some(Arc::new(self.clone()) as _);
        Services { undo, health: Some(health), ..Services::read_only(Arc::new(UnrestrictedRights)) }
    }
}

impl Undo for Scripted {
    fn preview(&self, request: UndoRequest) -> BoxFuture<'static, Result<Preview, UndoError>> {
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
        let recreate = Some(format!("trishanku undo --recreate {}", request.commit));
        let warnings = vec!["the commit has changes of jane and bob".to_owned()];
        let preview = Preview { steps, changes: 1, summary, warnings, plan: PLAN.to_owned(), recreate };
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
        std::future::ready(Ok(Undone { steps, commits: vec![request.commit], has_others: true, hint, recreate: None }))
            .boxed()
    }
}

//! The page of the health.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use tokio::time::timeout;

use crate::app::App;
use crate::problem::Problem;
use crate::view::{self, Rendered};

/// How long kube-apiserver may take: without its answer, the page has fewer details.
const LIMIT: Duration = Duration::from_secs(5);

/// The health of the control plane. Shown also while kube-apiserver does not answer.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Result<Rendered, Problem> {
    let Some(reader) = &app.health else {
        return Err(Problem::Missing("this page does not know the health of its control plane".to_owned()));
    };
    let review = async {
        let granted = timeout(LIMIT, app.rights.review(BTreeSet::new())).await;
        match granted {
            Ok(Ok(granted)) => (granted.is_everything(), None),
            Ok(Err(error)) => (false, Some(error.to_string())),
            Err(_) => (false, Some(format!("kube-apiserver has not answered within {LIMIT:?}"))),
        }
    };
    let (report, (is_detailed, problem)) = futures::join!(reader.read(), review);
    app.work.render(move || view::health(&report, is_detailed, problem.as_deref())).await
}

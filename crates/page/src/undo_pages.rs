//! The pages that revert a commit: a preview, and what was done.
//!
//! Both need the right to get every object that is reverted: the preview shows their values. What may be written, kube-apiserver
//! decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};

use crate::app::App;
use crate::keys::PREFIX;
use crate::problem::Problem;
use crate::query::Query;
use crate::undo::{Undo, UndoError, UndoRequest};
use crate::view::{self, Form};

/// Shows what an undo would do.
pub(crate) async fn preview(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let undo = app.undo()?;
    let request = admitted(&app, &id, Query::of(&uri).exact("object")).await?;
    let preview = undo.preview(request.clone()).await?;
    let form = Form { request, token: app.session.form_token().to_owned() };
    Ok(app.work.render(move || view::preview(&form, &preview, false)).await?.into_response())
}

/// Reverts a commit, if the plan is still that of the preview.
pub(crate) async fn apply(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, Problem> {
    let undo = app.undo()?;
    let fields = Query::parse(&body);
    if !fields.text("token").is_some_and(|token| app.session.is_form_token(token)) {
        let remedy = "the form is from an earlier run of this server: reload the preview, and confirm that";
        return Err(Problem::NotAllowed(remedy.to_owned()));
    }
    let request = admitted(&app, &id, fields.exact("object")).await?;
    let plan = fields.text("plan").unwrap_or_default().to_owned();
    match undo.apply(request.clone(), plan).await {
        Ok(undone) => Ok(app.work.render(move || view::undone(&request, &undone)).await?.into_response()),
        Err(UndoError::Changed(preview)) => {
            let form = Form { request, token: app.session.form_token().to_owned() };
            let page = app.work.render(move || view::preview(&form, &preview, true)).await?;
            Ok((StatusCode::CONFLICT, page).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

impl App {
    fn undo(&self) -> Result<Arc<dyn Undo>, Problem> {
        let why = "it was started with --read-only or --no-review, or the branch has no kube-apiserver";
        self.undo.clone().ok_or_else(|| Problem::Missing(format!("undo is disabled on this page: {why}")))
    }

    /// Checks the right to get an object, before it is known whether it exists.
    async fn check_right(&self, name: String) -> Result<(), Problem> {
        let key = self.read(move |branch, _| Ok(branch.key([PREFIX, name.as_bytes()].concat()))).await?;
        let object: BTreeSet<_> = key.object.clone().into_iter().collect();
        if self.rights.review(object).await?.allows(key.object.as_ref()) {
            return Ok(());
        }
        Err(Problem::NotAllowed(format!("{:?} is not allowed: you need the right to get it", key.text)))
    }
}

/// Returns the request if the user may read all that it is about.
async fn admitted(app: &Arc<App>, id: &str, key: Option<&str>) -> Result<UndoRequest, Problem> {
    let (id, key) = (id.to_owned(), key.map(ToOwned::to_owned));
    if let Some(name) = key.clone() {
        app.check_right(name).await?;
    }
    let name = key.clone();
    let changed = app.read(move |branch, _| branch.changed(&id, name.as_deref())).await?;
    let granted = app.rights.review(changed.objects()).await?;
    match changed.denied(&granted) {
        0 => Ok(UndoRequest { commit: changed.commit, key }),
        denied => Err(Problem::NotAllowed(format!(
            "an undo needs the right to get every changed object, and {denied} of {} are not allowed",
            changed.keys.len()
        ))),
    }
}

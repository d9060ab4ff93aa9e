//! The pages: each reads the branch, asks for the rights of what it found, and renders both.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use percent_encoding::percent_decode_str;

use crate::app::App;
use crate::keys::PREFIX;
use crate::problem::Problem;
use crate::query::{Filter, Query};
use crate::read::Branch;
use crate::read::commits::Request;
use crate::rights::Granted;
use crate::view::{self, Rendered};
use crate::work::Deadline;

type Answer = Result<Rendered, Problem>;

impl App {
    /// Reads the branch as it is now.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Branch, Deadline) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let settings = self.settings.clone();
        self.work.run(move |deadline| read(&Branch::open(&settings, &deadline)?, deadline)).await
    }

    /// Renders on a blocking thread: pages can have megabytes.
    async fn render(&self, render: impl FnOnce() -> Rendered + Send + 'static) -> Answer {
        self.work.render(render).await
    }
}

/// The commits of the branch.
pub(crate) async fn commits(State(app): State<Arc<App>>, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    let filter = Filter::of(&query);
    let is_everything = app.rights.review(BTreeSet::new()).await?.is_everything();
    let request = Request { before: query.text("before").map(ToOwned::to_owned), filter, with_keys: !is_everything };
    let asked = request.clone();
    let mut listing = app.read(move |branch, deadline| branch.list(&asked, &deadline)).await?;
    let granted = if is_everything { Granted::everything() } else { app.rights.review(listing.objects()).await? };
    if request.filter.is_any() && !granted.is_everything() {
        listing.retain_allowed(&request.filter, &granted);
    }
    app.render(move || view::commits(&request, &listing, &granted)).await
}

/// A commit.
pub(crate) async fn commit(State(app): State<Arc<App>>, Path(id): Path<String>, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    let (skipped, is_whole) = (query.number("skip"), query.is_whole());
    let commit = app.read(move |branch, _| branch.commit(&id, skipped, is_whole)).await?;
    let granted = app.rights.review(commit.objects()).await?;
    let (command, can_undo) = (app.settings.undo_command.clone(), app.undo.is_some());
    app.render(move || view::commit(&commit, &granted, is_whole, &command, can_undo)).await
}

/// An object. Its key is in the path, or in the query if browsers would change the path.
pub(crate) async fn object(State(app): State<Arc<App>>, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    let name =
        key_in(&uri).ok_or_else(|| Problem::Unusable("the key of an object is missing; search for it".to_owned()))?;
    let (skipped, is_whole) = (query.number("skip"), query.is_whole());
    // The rights come first: whether an object exists is not shown without them.
    let key = app.read(move |branch, _| Ok(branch.key(whole(name)))).await?;
    let granted = app.rights.review(key.object.clone().into_iter().collect()).await?;
    if !granted.allows(key.object.as_ref()) {
        return Err(Problem::NotAllowed(format!("{:?} is not allowed: you need the right to get it", key.text)));
    }
    let object = app.read(move |branch, _| branch.object(key, skipped, is_whole)).await?;
    let can_undo = app.undo.is_some();
    app.render(move || view::object(&object, is_whole, can_undo)).await
}

/// Objects by a part of their keys.
pub(crate) async fn search(State(app): State<Arc<App>>, uri: Uri) -> Answer {
    let words = Query::of(&uri).text("q").unwrap_or_default().to_owned();
    if words.is_empty() {
        return Ok(view::search("", None, &Granted::default()));
    }
    let text = words.clone();
    let found = app.read(move |branch, deadline| branch.search(&text, &deadline)).await?;
    let granted = app.rights.review(found.objects()).await?;
    app.render(move || view::search(&words, Some(&found), &granted)).await
}

/// There is no such page.
pub(crate) async fn missing() -> Problem {
    Problem::Missing("there is no such page".to_owned())
}

/// Returns the key in a request, which is any bytes.
fn key_in(uri: &Uri) -> Option<Vec<u8>> {
    let in_path = uri.path().strip_prefix("/object/");
    let in_query = || uri.query()?.split('&').find_map(|pair| pair.strip_prefix("key="));
    let bytes: Vec<u8> = percent_decode_str(in_path.or_else(in_query)?).collect();
    (!bytes.is_empty()).then_some(bytes)
}

/// Completes a key with the prefix of kube-apiserver.
fn whole(name: Vec<u8>) -> Vec<u8> {
    if name.starts_with(b"/") { name } else { [PREFIX, &name].concat() }
}

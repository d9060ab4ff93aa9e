//! Announces new commits, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream;
use gitcd_repo::watch::{Changes, Snapshot};
use tokio::sync::OwnedSemaphorePermit;

use crate::app::App;
use crate::problem::Problem;

/// Concurrent streams; a browser has one for each open page.
pub(crate) const STREAMS: usize = 32;
/// A stream without events sends a comment this often, so that a closed connection is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How soon browsers connect again.
const RETRY: Duration = Duration::from_secs(1);

/// Sends the head of the branch now, and each new one. A slow reader misses the heads in between.
pub(crate) async fn events(State(app): State<Arc<App>>) -> Response {
    let Ok(permit) = app.streams.clone().try_acquire_owned() else {
        return Problem::Late(format!("more than {STREAMS} pages are open; close some")).into_response();
    };
    let follower = Follower { changes: app.watcher.changes(), app, is_first: true, _permit: permit };
    let events = stream::unfold(follower, |mut follower| async {
        if !std::mem::take(&mut follower.is_first) {
            // The end of the stream makes the browser connect again.
            follower.changes.next().await?;
        }
        let head = head(&follower.app, follower.changes.seen());
        let event = Event::default().event("head").retry(RETRY).data(head);
        Some((Ok::<_, Infallible>(event), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

struct Follower {
    app: Arc<App>,
    changes: Changes,
    is_first: bool,
    _permit: OwnedSemaphorePermit,
}

/// Formats the commits at which the references of the branch are.
fn head(app: &App, references: &Snapshot) -> String {
    let branch = &app.settings.branch;
    let target = |name: &str| references.get(name).map(ToString::to_string).unwrap_or_default();
    format!("{}-{}", target(&branch.data_reference), target(&branch.metadata_reference))
}

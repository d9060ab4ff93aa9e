//! Streams reference changes to clients as server-sent events.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use gitcd_net::listener::Peer;
use gitcd_repo::watch::{Changes, RefChange, RefWatcher, Snapshot, WatchError};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::Inner;
use super::name::Name;
use super::problem::{Problem, blocking};
use super::service::answer;

/// Interval of keep-alive comments, and the longest time until a revoked right ends a stream.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Larger batches of changes are sent as a new snapshot.
const MAX_CHANGES: usize = 1000;

/// Watchers of the repositories that have followers.
#[derive(Debug, Default, Clone)]
pub(super) struct Followed(Arc<Mutex<HashMap<PathBuf, std::sync::Weak<RefWatcher>>>>);

impl Followed {
    /// Returns the watcher of a repository, shared by all its followers. Blocks.
    fn watcher(&self, repository: &Path) -> Result<Arc<RefWatcher>, WatchError> {
        let mut watchers = self.0.lock();
        if let Some(watcher) = watchers.get(repository).and_then(std::sync::Weak::upgrade)
            && watcher.is_alive()
        {
            return Ok(watcher);
        }
        watchers.retain(|_, watcher| watcher.strong_count() > 0);
        let watcher = Arc::new(RefWatcher::new(repository, |_| true)?);
        watchers.insert(repository.to_owned(), Arc::downgrade(&watcher));
        Ok(watcher)
    }
}

/// A client that follows a repository's references.
struct Follower {
    host: Arc<Inner>,
    /// Has the credentials, which are checked again before every event.
    headers: HeaderMap,
    peer: Option<Peer>,
    name: Name,
    changes: Changes,
    is_new: bool,
    stop: watch::Receiver<bool>,
    _watcher: Arc<RefWatcher>,
    _permit: OwnedSemaphorePermit,
}

/// Answers with an event stream: first all references, then every change.
pub(super) async fn serve(
    host: &Arc<Inner>,
    repository: PathBuf,
    name: Name,
    headers: HeaderMap,
    peer: Option<Peer>,
) -> Result<Response, Problem> {
    let permit = host.followers.clone().try_acquire_owned().map_err(|_| Problem::Busy)?;
    let shared = host.followed.clone();
    let watcher = blocking("follow references", move || shared.watcher(&repository)).await?;
    let watcher = watcher.map_err(|error| {
        tracing::error!(%error, "cannot follow references");
        Problem::Failed
    })?;
    let follower = Follower {
        host: host.clone(),
        headers,
        peer,
        name,
        changes: watcher.changes(),
        is_new: true,
        stop: host.stop.subscribe(),
        _watcher: watcher,
        _permit: permit,
    };
    let events = stream::unfold(follower, async |mut follower| {
        let events = follower.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(events)), follower))
    });
    Ok(answer("text/event-stream", Body::from_stream(events)))
}

impl Follower {
    /// Returns the next events as text; `None` ends the stream.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_new) {
            return Some(snapshot(self.changes.seen()));
        }
        let changes = tokio::select! {
            _ = self.stop.wait_for(|stop| *stop) => return None,
            changes = self.changes.next() => Some(changes?),
            () = tokio::time::sleep(SIGN_OF_LIFE) => None,
        };
        if !self.is_allowed().await {
            return None;
        }
        Some(match changes {
            None => ": still here\n\n".to_owned(),
            Some(changes) if changes.len() > MAX_CHANGES => snapshot(self.changes.seen()),
            Some(changes) => changes.iter().map(change).collect(),
        })
    }

    /// Whether the client still has access: tokens and rights can be revoked while it follows.
    async fn is_allowed(&self) -> bool {
        let certificate = self.peer.as_ref().and_then(|peer| peer.name.as_deref());
        let caller = self.host.gate.admit(&self.headers, certificate).await;
        caller.is_ok_and(|caller| caller.access(self.name.as_str()).is_some())
    }
}

fn snapshot(references: &Snapshot) -> String {
    let references: serde_json::Map<_, _> =
        references.iter().map(|(name, id)| (name.clone(), id.to_string().into())).collect();
    event("snapshot", &json!({ "references": references }))
}

fn change(change: &RefChange) -> String {
    let id = |id: Option<git2::Oid>| id.map(|id| id.to_string());
    event("change", &json!({ "reference": change.reference, "old": id(change.old), "new": id(change.new) }))
}

fn event(kind: &str, data: &serde_json::Value) -> String {
    let mut text = String::new();
    // Compact JSON has no line breaks.
    write!(text, "event: {kind}\ndata: {data}\n\n").expect("writing to a String cannot fail");
    text
}

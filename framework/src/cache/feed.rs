//! Fills a cache, whatever happens to the connection.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};

use super::trouble::Trouble;
use super::{Cache, Listing};
use crate::Object;
use crate::error::{Failure, Retry};
use crate::queue::Backoff;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// Lists and watches for ever. After an error it waits: half a second, up to half a minute for errors in a row, or as long as the apiserver asks for.
pub(super) async fn feed<K: Object>(
    api: Api<K>,
    config: watcher::Config,
    cache: Arc<Cache<K>>,
    mut listing: Listing<K>,
    trouble: Arc<Trouble>,
) {
    let name = format!("{} {}", cache.kind().name(), listing.namespace.as_deref().unwrap_or("everywhere"));
    let mut failures = 0;
    loop {
        let mut events = pin!(watcher(api.clone(), config.clone()));
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                // A watch that goes on where it was may have nothing to tell, and nobody knows. A list has an end.
                () = trouble.hurry() => break,
            };
            match event {
                // It has no end.
                None => break,
                Some(Ok(event)) => {
                    // A list that is begun or has a page is no success yet.
                    let is_success = matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_));
                    cache.apply(event, &mut listing);
                    if is_success {
                        failures = 0;
                        trouble.is_over();
                    }
                }
                Some(Err(error)) => {
                    // Who says that it has forgotten is well; what failed before was something else.
                    failures = if is_forgotten(&error) { 1 } else { failures + 1 };
                    let asked = asked_for(&error);
                    let delay = BACKOFF.delay(failures, &name).max(asked);
                    tracing::warn!(watch = name, failures, ?delay, %error, "watch failed");
                    trouble.failed();
                    tokio::time::sleep(asked).await;
                    tokio::select! {
                        () = tokio::time::sleep(delay.saturating_sub(asked)) => {}
                        () = trouble.hurry() => break,
                    }
                    if is_beyond_resuming(&error) {
                        break;
                    }
                }
            }
        }
    }
}

/// Whether the apiserver does not know any more where the watch was.
fn is_forgotten(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) | watcher::Error::WatchError(status) => {
            status.code == 410
        }
        _ => false,
    }
}

/// Whether the watch cannot go on from where it was: that is forgotten there, or the kind is gone, and with it all objects.
///
/// The watcher lists again if it is told so in a watch that was opened; if the opening itself is refused, it would try for ever.
fn is_beyond_resuming(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if matches!(status.code, 404 | 410))
}

/// For how long the apiserver wants to be left alone.
fn asked_for(error: &watcher::Error) -> Duration {
    let retry = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => error.retry(),
        watcher::Error::WatchError(status) => kube::Error::Api(status.clone()).retry(),
        watcher::Error::NoResourceVersion => Retry::BackOff,
    };
    match retry {
        Retry::NotBefore(time) => time,
        _ => Duration::ZERO,
    }
}

//! Fills a cache, and recovers from errors.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::WatchEvent;
use kube::runtime::watcher::Error;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{Event, Read, gone};
use super::source::{Page, Source, Watched, is_end_of_initial_events, lacks_streams};
use super::trouble::WatchHealth;
use super::{Cache, Listing};
use crate::Object;
use crate::error::{Failure, Retry, chain};
use crate::queue::Backoff;

const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(30) };

/// A watch that is silent for so long is dead: the apiserver was asked to end it after 290 seconds.
const SILENCE: Duration = Duration::from_secs(295);

/// Fills a cache, or the part of it that belongs to one namespace.
pub(super) struct Reflector<K: Object> {
    source: Source,
    cache: Arc<Cache<K>>,
    listing: Listing<K>,
    trouble: Arc<WatchHealth>,
    failures: u32,
    /// The version up to which the cache is complete; `None` before the first list.
    version: Option<String>,
    /// Whether the present state is read as a stream, and not in pages.
    streams: bool,
    /// Whether the stream has not sent all of it.
    is_initial: bool,
}

/// A page of a list. Its objects are decoded one by one.
#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl<K: Object> Reflector<K> {
    pub(super) fn new(source: Source, cache: Arc<Cache<K>>, listing: Listing<K>, trouble: Arc<WatchHealth>) -> Self {
        Self { source, cache, listing, trouble, failures: 0, version: None, streams: true, is_initial: false }
    }

    /// Lists and watches for ever. After an error it waits for half a second, up to half a minute after consecutive errors,
    /// or for as long as the apiserver asks.
    pub(super) async fn run(mut self) {
        let name =
            format!("{} {}", self.cache.kind().name(), self.listing.namespace.as_deref().unwrap_or("everywhere"));
        let trouble = self.trouble.clone();
        loop {
            let ended = tokio::select! {
                ended = self.follow() => ended,
                // A resumed watch may have nothing to report, so it does not show that it has caught up. A list ends.
                () = trouble.hurry() => {
                    self.version = None;
                    continue;
                }
            };
            let Err(error) = ended else { continue };
            // An apiserver that answers "expired" is healthy: earlier failures had another cause.
            self.failures = if is_forgotten(&error) { 1 } else { self.failures + 1 };
            let asked = asked_for(&error);
            let delay = BACKOFF.delay(self.failures, &name).max(asked);
            tracing::warn!(watch = name, failures = self.failures, ?delay, error = chain(&error), "watch failed");
            trouble.failed();
            if is_beyond_resuming(&error) {
                self.version = None;
            }
            tokio::time::sleep(asked).await;
            tokio::select! {
                () = tokio::time::sleep(delay.saturating_sub(asked)) => {}
                () = trouble.hurry() => self.version = None,
            }
        }
    }

    /// Lists if necessary, then watches until the watch ends cleanly.
    async fn follow(&mut self) -> Result<(), Error> {
        let mut events = self.begin().await?;
        loop {
            let patience = if self.is_initial { self.source.limit().unwrap_or(Duration::MAX) } else { SILENCE };
            match tokio::time::timeout(patience, events.next()).await {
                Ok(Some(event)) => {
                    let failed = if self.is_initial { Error::InitialListFailed } else { Error::WatchFailed };
                    self.take(event.map_err(failed)?)?;
                }
                // Or it does not say when it has sent all objects: pages end.
                ended if self.is_initial => {
                    self.streams = false;
                    let error = if ended.is_ok() { ended_early() } else { self.source.silent() };
                    return Err(Error::InitialListFailed(error));
                }
                Ok(None) | Err(_) => return Ok(()),
            }
        }
    }

    /// Starts the watch.
    async fn begin(&mut self) -> Result<Watched, Error> {
        self.is_initial = false;
        let version = match &self.version {
            Some(version) => version.clone(),
            None if self.streams => match self.source.stream().await {
                Ok(events) => {
                    self.is_initial = true;
                    self.cache.apply(Event::Init, &mut self.listing);
                    return Ok(events);
                }
                Err(refused) if lacks_streams(&refused) => {
                    self.streams = false;
                    self.list().await?
                }
                Err(error) => return Err(Error::InitialListFailed(error)),
            },
            None => self.list().await?,
        };
        self.source.watch(&version).await.map_err(Error::WatchStartFailed)
    }

    /// Lists all objects in pages, and returns the version of the list.
    async fn list(&mut self) -> Result<String, Error> {
        self.cache.apply(Event::Init, &mut self.listing);
        let mut wanted = Page::first();
        loop {
            let text = self.source.page(wanted).await.map_err(Error::InitialListFailed)?;
            let page: Listed<'_> = serde_json::from_str(&text).map_err(unreadable_list)?;
            let count = page.items.as_ref().map_or(0, Vec::len);
            for raw in page.items.into_iter().flatten() {
                let (object, _) = Read::of(self.cache.kind(), raw).map_err(unreadable_list)?;
                self.cache.apply(Event::InitApply(object), &mut self.listing);
            }
            let Some(after) = page.metadata.continue_.filter(|after| !after.is_empty()) else {
                let version = page.metadata.resource_version.filter(|version| !version.is_empty());
                let version = version.ok_or(Error::NoResourceVersion)?;
                self.cache.apply(Event::InitDone(version.parse().ok()), &mut self.listing);
                self.caught_up(version.clone());
                return Ok(version);
            };
            wanted = Page::next(after, count, text.len());
        }
    }

    fn take(&mut self, event: WatchEvent<Box<RawValue>>) -> Result<(), Error> {
        let (event, version) = match event {
            WatchEvent::Added(raw) | WatchEvent::Modified(raw) => {
                let (object, version) = Read::of(self.cache.kind(), &raw).map_err(unreadable_event)?;
                (if self.is_initial { Event::InitApply(object) } else { Event::Apply(object) }, version)
            }
            WatchEvent::Deleted(raw) => {
                let (key, version) = gone(&raw).map_err(unreadable_event)?;
                let deleted = Event::Delete(key.clone(), version.parse().ok());
                (if self.is_initial { Event::InitDelete(key) } else { deleted }, version)
            }
            WatchEvent::Bookmark(bookmark) if self.is_initial => {
                let version = bookmark.metadata.resource_version.clone();
                if is_end_of_initial_events(&bookmark) {
                    if version.is_empty() {
                        return Err(Error::NoResourceVersion);
                    }
                    self.is_initial = false;
                    self.cache.apply(Event::InitDone(version.parse().ok()), &mut self.listing);
                    self.caught_up(version);
                }
                return Ok(());
            }
            // A bookmark changes nothing, and does not show that the apiserver's store is healthy.
            WatchEvent::Bookmark(bookmark) => {
                // Without a version, a watch starts with the existing objects, and does not report deletions before that.
                let version = bookmark.metadata.resource_version;
                self.version = Some(version).filter(|version| !version.is_empty()).or(self.version.take());
                return Ok(());
            }
            WatchEvent::Error(status) => return Err(Error::WatchError(status)),
        };
        if version.is_empty() {
            self.version = None;
            return Err(Error::NoResourceVersion);
        }
        self.cache.apply(event, &mut self.listing);
        if !self.is_initial {
            self.caught_up(version);
        }
        Ok(())
    }

    /// The cache is complete up to this version, so the watch is healthy. An incomplete list does not show that.
    fn caught_up(&mut self, version: String) {
        self.version = Some(version);
        self.failures = 0;
        self.trouble.is_over();
    }
}

/// The error of a stream that ended before it had sent all objects.
fn ended_early() -> kube::Error {
    kube::Error::ReadEvents(io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the watch ended before it had sent all objects",
    ))
}

fn unreadable_list(error: serde_json::Error) -> Error {
    Error::InitialListFailed(kube::Error::SerdeError(error))
}

fn unreadable_event(error: serde_json::Error) -> Error {
    Error::WatchFailed(kube::Error::SerdeError(error))
}

/// Returns whether the apiserver no longer has the version of the watch.
fn is_forgotten(error: &Error) -> bool {
    match error {
        Error::WatchStartFailed(kube::Error::Api(status)) | Error::WatchError(status) => status.code == 410,
        _ => false,
    }
}

/// Returns whether the watch cannot resume: its version is expired, or the kind is gone with all its objects.
fn is_beyond_resuming(error: &Error) -> bool {
    is_forgotten(error) || matches!(error, Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 404)
}

/// Returns the delay that the apiserver asked for.
fn asked_for(error: &Error) -> Duration {
    let retry = match error {
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => error.retry(),
        Error::WatchError(status) => kube::Error::Api(status.clone()).retry(),
        Error::NoResourceVersion => Retry::BackOff,
    };
    match retry {
        Retry::NotBefore(time) => time,
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures::stream::{self, BoxStream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;

    use super::*;
    use crate::Key;
    use crate::cache::{Caches, Scope};

    const ADDED: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"x","resourceVersion":"3"}}}"#;
    const GONE: &str = r#"{"type":"DELETED","object":{"metadata":{"name":"a","namespace":"x","resourceVersion":"4"}}}"#;
    const OTHER: &str = r#"{"type":"ADDED","object":{"metadata":{"name":"b","namespace":"x","resourceVersion":"4"}}}"#;
    const END: &str = r#"{"type":"BOOKMARK","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}"#;
    const PAGE: &str = r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"c","namespace":"x","resourceVersion":"6"}}]}"#;

    type Answer = Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

    fn lines(lines: &[&str]) -> BoxStream<'static, io::Result<Frame<Bytes>>> {
        let lines: Vec<_> = lines.iter().map(|line| Ok(Frame::data(Bytes::from(format!("{line}\n"))))).collect();
        stream::iter(lines).boxed()
    }

    /// Returns events of a watch that does not end.
    fn watch(events: &[&str]) -> Answer {
        Response::new(StreamBody::new(lines(events).chain(stream::pending()).boxed()))
    }

    /// Fills a cache from an apiserver that answers a stream with these lines; returns its keys, and the requests.
    async fn filled(initial: &'static [&'static str]) -> (Vec<Key>, Vec<String>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = asked.clone();
        let client = Client::new(
            tower::service_fn(move |request: Request<Body>| {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let answer = if query.contains("sendInitialEvents=true") {
                    watch(initial)
                } else if query.contains("watch=true") {
                    watch(&[])
                } else {
                    Response::new(StreamBody::new(lines(&[PAGE])))
                };
                log.lock().unwrap().push(query);
                async { Ok::<_, io::Error>(answer) }
            }),
            "default",
        );
        let caches = Caches::new(Scope::All);
        let cache = caches.cache::<ConfigMap>();
        tokio::select! {
            () = caches.fill_within(&client, Duration::from_millis(300)) => panic!("watches run for ever"),
            synced = tokio::time::timeout(Duration::from_mins(1), cache.synced()) => synced.unwrap(),
        }
        let asked = asked.lock().unwrap().clone();
        (cache.keys(), asked)
    }

    #[tokio::test]
    async fn a_stream_is_complete_at_the_bookmark_that_says_so() {
        let (keys, asked) = filled(&[ADDED, GONE, OTHER, END]).await;
        assert_eq!((keys, asked.len()), (vec![Key::namespaced("x", "b")], 1));
    }

    #[tokio::test]
    async fn a_stream_that_never_says_that_it_is_complete_is_replaced_by_a_list() {
        let (keys, asked) = filled(&[ADDED]).await;
        assert_eq!(keys, [Key::namespaced("x", "c")]);
        assert!(asked[0].contains("sendInitialEvents=true") && asked[1].contains("limit="), "{asked:?}");
    }
}

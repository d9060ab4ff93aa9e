//! Lists and watches, as text.

use std::pin::pin;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use kube::core::watch::Bookmark;
use serde_json::value::RawValue;

use super::selector::Selector;

/// Maximum number of objects in a page, as in client-go.
const MOST: usize = 500;
/// Number of objects in the first page, when their size is not known.
const FIRST: usize = 100;
const LEAST: usize = 10;
/// Target size of a page. Several kinds are listed concurrently at startup, and this memory is never returned to the system.
const BYTES: usize = 1 << 20;

/// The events of a watch.
pub(super) type Watched = BoxStream<'static, kube::Result<WatchEvent<Box<RawValue>>>>;

/// The endpoint of a kind's objects, or of those in one namespace.
pub(super) struct Source {
    client: Client,
    request: Request,
    selector: Selector,
    /// Whether only the metadata is wanted.
    metadata: bool,
    /// How long the apiserver may be silent; zero means no limit.
    limit: Duration,
}

/// A page of a list.
#[derive(Debug)]
pub(super) struct Page {
    after: Option<String>,
    limit: usize,
}

impl Page {
    pub(super) fn first() -> Self {
        Self { after: None, limit: FIRST }
    }

    /// Returns the page after one with this number of objects and bytes.
    pub(super) fn next(after: String, objects: usize, bytes: usize) -> Self {
        let limit = BYTES.saturating_mul(objects).checked_div(bytes).unwrap_or(MOST);
        Self { after: Some(after), limit: limit.clamp(LEAST, MOST) }
    }
}

/// The apiserver accepted a request, and does not respond.
#[derive(Debug, thiserror::Error)]
#[error("kube-apiserver has sent nothing for {0:?}")]
struct Silent(Duration);

impl Source {
    pub(super) fn new(client: Client, path: String, selector: Selector, limit: Duration) -> Self {
        Self { client, request: Request::new(path), selector, metadata: false, limit }
    }

    /// Requests only the metadata of the objects.
    pub(super) fn of_metadata(self, metadata: bool) -> Self {
        Self { metadata, ..self }
    }

    /// Reads a page of a list. The time limit applies to each piece of the body, so a long list is no failure.
    pub(super) async fn page(&self, page: Page) -> kube::Result<String> {
        let Selector { labels: label_selector, fields: field_selector } = self.selector.clone();
        let (limit, continue_token) = (u32::try_from(page.limit).ok(), page.after);
        let parameters = ListParams { label_selector, field_selector, limit, continue_token, ..ListParams::default() };
        let request = if self.metadata { Request::list_metadata } else { Request::list };
        let request = request(&self.request, &parameters).map_err(kube::Error::BuildRequest)?;
        let mut body = pin!(self.in_time(self.client.request_stream(request)).await?);
        let mut text = Vec::new();
        loop {
            let piece = self.in_time(async { body.fill_buf().await.map_err(kube::Error::ReadEvents) }).await?;
            let length = piece.len();
            if length == 0 {
                return String::from_utf8(text).map_err(kube::Error::FromUtf8);
            }
            text.extend_from_slice(piece);
            body.consume_unpin(length);
        }
    }

    /// Watches for changes after `version`.
    pub(super) async fn watch(&self, version: &str) -> kube::Result<Watched> {
        self.watch_with(WatchParams::default(), version).await
    }

    /// Watches from now on, and begins with all objects as of now, which a bookmark ends ([`is_end_of_initial_events`]).
    ///
    /// This is a [streaming list](https://kep.k8s.io/3157): unlike pages of a list, it costs kube-apiserver no memory for all
    /// objects at once, and the watch continues without a second request.
    pub(super) async fn stream(&self) -> kube::Result<Watched> {
        self.watch_with(WatchParams::default().initial_events(), "").await
    }

    async fn watch_with(&self, parameters: WatchParams, version: &str) -> kube::Result<Watched> {
        let Selector { labels: label_selector, fields: field_selector } = self.selector.clone();
        let parameters = WatchParams { label_selector, field_selector, ..parameters };
        let request = if self.metadata { Request::watch_metadata } else { Request::watch };
        let request = request(&self.request, &parameters, version).map_err(kube::Error::BuildRequest)?;
        let events = self.in_time(self.client.request_events(request)).await?;
        Ok(events.boxed())
    }

    /// The error of an apiserver that is silent.
    pub(super) fn silent(&self) -> kube::Error {
        kube::Error::Service(Silent(self.limit).into())
    }

    /// Returns how long the apiserver may be silent, if that is limited.
    pub(super) fn limit(&self) -> Option<Duration> {
        Some(self.limit).filter(|limit| !limit.is_zero())
    }

    async fn in_time<T>(&self, step: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        match self.limit() {
            None => step.await,
            Some(limit) => tokio::time::timeout(limit, step).await.unwrap_or_else(|_| Err(self.silent())),
        }
    }
}

/// Returns whether a bookmark ends the initial events of a [stream](Source::stream).
pub(super) fn is_end_of_initial_events(bookmark: &Bookmark) -> bool {
    bookmark.metadata.annotations.get("k8s.io/initial-events-end").is_some_and(|value| value == "true")
}

/// Returns whether an apiserver that refused a [stream](Source::stream) may not have this feature, or has it switched off: it
/// takes the parameters for invalid. If something else is invalid, a list is refused, too.
pub(super) fn lacks_streams(refused: &kube::Error) -> bool {
    matches!(refused, kube::Error::Api(status) if matches!(status.code, 400 | 422))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_metadata_is_asked_for_if_only_that_is_wanted() {
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let asks = asked.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let accepted =
                request.headers().get(http::header::ACCEPT).map(|accept| accept.to_str().unwrap().to_owned());
            asks.lock().unwrap().push(accepted.unwrap_or_default());
            async { Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::from(b"{}".to_vec()))) }
        });
        let client = Client::new(service, "default");
        for metadata in [true, false] {
            let source = Source::new(client.clone(), "/api/v1/secrets".to_owned(), Selector::default(), Duration::ZERO);
            let source = source.of_metadata(metadata);
            source.page(Page::first()).await.unwrap();
            drop(source.watch("7").await.unwrap());
        }
        let asked: Vec<_> =
            asked.lock().unwrap().iter().map(|accept| accept.contains("as=PartialObjectMetadata")).collect();
        assert_eq!(asked, [true, true, false, false]);
    }

    #[test]
    fn pages_of_large_objects_have_few_of_them() {
        let limit = |objects, bytes| Page::next("x".to_owned(), objects, bytes).limit;
        assert_eq!((limit(100, 100 << 10), limit(100, 1 << 20), limit(100, 4 << 20)), (MOST, 100, 25));
        // Secrets of a megabyte each; an empty page.
        assert_eq!((limit(100, 100 << 20), limit(0, 90), limit(0, 0)), (LEAST, LEAST, MOST));
    }
}

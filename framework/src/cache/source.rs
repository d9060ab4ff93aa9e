//! Lists and watches, as text.

use std::pin::pin;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::value::RawValue;

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
    selector: Option<String>,
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
    pub(super) fn new(client: Client, path: String, selector: Option<String>, limit: Duration) -> Self {
        Self { client, request: Request::new(path), selector, metadata: false, limit }
    }

    /// Requests only the metadata of the objects.
    pub(super) fn of_metadata(self, metadata: bool) -> Self {
        Self { metadata, ..self }
    }

    /// Reads a page of a list. The time limit applies to each piece of the body, so a long list is no failure.
    pub(super) async fn page(&self, page: Page) -> kube::Result<String> {
        let (label_selector, limit) = (self.selector.clone(), u32::try_from(page.limit).ok());
        let parameters = ListParams { label_selector, limit, continue_token: page.after, ..ListParams::default() };
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
        let parameters = WatchParams { label_selector: self.selector.clone(), ..WatchParams::default() };
        let request = if self.metadata { Request::watch_metadata } else { Request::watch };
        let request = request(&self.request, &parameters, version).map_err(kube::Error::BuildRequest)?;
        let events = self.in_time(self.client.request_events(request)).await?;
        Ok(events.boxed())
    }

    async fn in_time<T>(&self, step: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
        if self.limit.is_zero() {
            return step.await;
        }
        let silent = |_| Err(kube::Error::Service(Silent(self.limit).into()));
        tokio::time::timeout(self.limit, step).await.unwrap_or_else(silent)
    }
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
            let source = Source::new(client.clone(), "/api/v1/secrets".to_owned(), None, Duration::ZERO);
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

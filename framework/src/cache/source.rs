//! Lists and watches, as text.

use std::pin::pin;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{AsyncBufReadExt, StreamExt};
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::value::RawValue;

/// Most objects of a page, as client-go has it.
const PAGE: u32 = 500;

/// What a watch sends.
pub(super) type Watched = BoxStream<'static, kube::Result<WatchEvent<Box<RawValue>>>>;

/// Where the objects of a kind, or of one in a namespace, are listed and watched.
pub(super) struct Source {
    client: Client,
    request: Request,
    selector: Option<String>,
    /// How long the apiserver may be silent; zero is for ever.
    limit: Duration,
}

/// The apiserver took a request, and does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the apiserver has sent nothing for {0:?}")]
struct Silent(Duration);

impl Source {
    pub(super) fn new(client: Client, path: String, selector: Option<String>, limit: Duration) -> Self {
        Self { client, request: Request::new(path), selector, limit }
    }

    /// One page of a list. The body is taken as it comes, so a list may be as long as it wants as long as there is more of it.
    pub(super) async fn page(&self, after: Option<String>) -> kube::Result<String> {
        let (label_selector, limit) = (self.selector.clone(), Some(PAGE));
        let parameters = ListParams { label_selector, limit, continue_token: after, ..ListParams::default() };
        let request = self.request.list(&parameters).map_err(kube::Error::BuildRequest)?;
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

    /// What happens after `version`.
    pub(super) async fn watch(&self, version: &str) -> kube::Result<Watched> {
        let parameters = WatchParams { label_selector: self.selector.clone(), ..WatchParams::default() };
        let request = self.request.watch(&parameters, version).map_err(kube::Error::BuildRequest)?;
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

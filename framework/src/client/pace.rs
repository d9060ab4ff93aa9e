//! Limits the rate at which watches are opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::around::{Around, Surrounded};

/// How many are opened at once, after a time without any.
const BURST: u32 = 3;
/// Interval after that.
const REFILL: Duration = Duration::from_secs(1);

/// A layer that opens each watch three times at once, and then once a second; other requests pass.
///
/// Caches and kube-runtime's watcher reopen a watch that ended cleanly without any delay. A proxy that ends every watch
/// immediately would turn that into a hot loop. Watches of other objects, and with other selectors, count separately.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    opened: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Pace {
    /// Returns when a watch that is requested now may be opened.
    fn turn(&self, watch: String, now: Instant) -> Instant {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // Each opening uses up a second. At most `BURST` unused seconds are saved.
        let floor = now.checked_sub(REFILL * (BURST - 1)).unwrap_or(now);
        let turn = opened.get(&watch).map_or(floor, |last| (*last + REFILL).max(floor));
        opened.retain(|_, last| *last > floor);
        opened.insert(watch, turn);
        turn.max(now)
    }
}

/// Returns whether the request is a watch.
pub(super) fn is_watch(uri: &http::Uri) -> bool {
    let mut parameters = uri.query().unwrap_or_default().split('&');
    parameters.any(|parameter| matches!(parameter, "watch=true" | "watch=1" | "watch"))
}

/// Returns the path and the selectors of a watch; `None` if the request is not a watch.
fn watched(uri: &http::Uri) -> Option<String> {
    if !is_watch(uri) {
        return None;
    }
    let mut parameters = uri.query()?.split('&');
    let mut name = uri.path().to_owned();
    parameters.by_ref().filter(|p| p.starts_with("labelSelector=") || p.starts_with("fieldSelector=")).for_each(
        |selector| {
            name.push('&');
            name.push_str(selector);
        },
    );
    Some(name)
}

impl<S> Layer<S> for Pace {
    type Service = Surrounded<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        Surrounded::new(inner, self)
    }
}

impl<S, B> Around<S, B> for Pace
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: Into<BoxError>,
{
    fn around(&self, inner: &mut S, request: Request<B>) -> BoxFuture<'static, Result<S::Response, BoxError>> {
        let turn = watched(request.uri()).map(|watch| self.turn(watch, Instant::now()));
        let answer = inner.call(request);
        async move {
            if let Some(turn) = turn {
                tokio::time::sleep_until(turn).await;
            }
            answer.await.map_err(Into::into)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_its_path_and_its_selectors() {
        let of = |uri: &str| watched(&uri.parse().unwrap());
        let pods = "/api/v1/pods?&watch=true&labelSelector=a%3Db&timeoutSeconds=290&resourceVersion=";
        assert_eq!(of(&format!("{pods}7")), of(&format!("{pods}8")));
        assert_eq!(of(&format!("{pods}7")).as_deref(), Some("/api/v1/pods&labelSelector=a%3Db"));
        assert_ne!(of("/api/v1/pods?watch=true"), of("/api/v1/namespaces/a/pods?watch=true"));
        assert_eq!(of("/api/v1/pods?limit=500"), None);
        assert_eq!(of("/api/v1/pods"), None);
    }

    #[test]
    fn three_at_once_then_one_a_second_and_three_again_after_a_while() {
        let (pace, now) = (Pace::default(), Instant::now());
        let waits = |now| pace.turn("pods".to_owned(), now) - now;
        let seconds = |seconds| Duration::from_secs(seconds);
        let first: Vec<_> = (0..5).map(|_| waits(now)).collect();
        assert_eq!(first, [0, 0, 0, 1, 2].map(seconds));
        let later = now + seconds(10);
        assert_eq!([waits(later), waits(later), waits(later), waits(later)], [0, 0, 0, 1].map(seconds));
        assert_eq!(pace.turn("secrets".to_owned(), now), now);
    }
}

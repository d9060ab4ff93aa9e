//! Preserves `Retry-After`.

use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Either, Full, Limited};
use kube::core::Status;
use kube::core::response::StatusDetails;
use tower::{BoxError, Layer, Service};

/// Error responses are never larger.
const MOST_BYTES: usize = 64 << 10;

/// A layer that copies the header `Retry-After` of an error response (429, 503, 504) into its `Status`, as
/// `details.retryAfterSeconds`.
///
/// kube reads the body and drops the headers, but an overloaded apiserver puts the delay into the header alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryAfter;

impl<S> Layer<S> for RetryAfter {
    type Service = RetryAfterService<S>;

    fn layer(&self, inner: S) -> RetryAfterService<S> {
        RetryAfterService { inner }
    }
}

/// A service behind [`RetryAfter`].
#[derive(Clone, Debug)]
pub struct RetryAfterService<S> {
    inner: S,
}

impl<S, A, B> Service<Request<A>> for RetryAfterService<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Either<B, Full<Bytes>>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await.map_err(Into::into)?;
            match asked_for(&answer) {
                Some(seconds) => with_retry_after(answer, seconds).await,
                None => Ok(answer.map(Either::Left)),
            }
        }
        .boxed()
    }
}

/// Returns the seconds of an error response's `Retry-After`. Dates, which no apiserver sends, are ignored.
fn asked_for<B>(answer: &Response<B>) -> Option<u32> {
    let refused = matches!(
        answer.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
    );
    answer.headers().get(header::RETRY_AFTER).filter(|_| refused)?.to_str().ok()?.trim().parse().ok()
}

async fn with_retry_after<B>(answer: Response<B>, seconds: u32) -> Result<Response<Either<B, Full<Bytes>>>, BoxError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let (mut parts, body) = answer.into_parts();
    let body = Limited::new(body, MOST_BYTES).collect().await?.to_bytes();
    let code = parts.status.as_u16();
    let mut status = serde_json::from_slice(&body).unwrap_or_else(|_| {
        let reason = parts.status.canonical_reason().unwrap_or_default().replace(' ', "");
        Status::failure(String::from_utf8_lossy(&body).trim(), &reason).with_code(code)
    });
    let details = status.details.get_or_insert(StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    parts.headers.remove(header::CONTENT_LENGTH);
    let body = serde_json::to_vec(&status)?;
    Ok(Response::from_parts(parts, Either::Right(Full::new(body.into()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn respond(code: u16, retry_after: Option<&str>, body: &'static str) -> (u16, String) {
        let retry_after = retry_after.map(ToOwned::to_owned);
        let mut service = RetryAfter.layer(tower::service_fn(move |_: Request<()>| {
            let mut answer = Response::builder().status(code);
            if let Some(value) = &retry_after {
                answer = answer.header(header::RETRY_AFTER, value);
            }
            let answer = answer.body(Full::new(Bytes::from(body)));
            async move { answer.map_err(BoxError::from) }
        }));
        let answer = service.call(Request::new(())).await.unwrap();
        let code = answer.status().as_u16();
        (code, String::from_utf8(answer.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_time_is_in_the_status_whether_there_was_one_or_not() {
        let (code, body) = respond(429, Some("7"), "Too many requests, please try again later.").await;
        let status: Status = serde_json::from_str(&body).unwrap();
        assert_eq!((code, status.code, status.reason.as_str()), (429, 429, "TooManyRequests"));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);

        let body = r#"{"kind":"Status","code":503,"reason":"X","details":{"name":"a","retryAfterSeconds":9}}"#;
        let (_, body) = respond(503, Some("7"), body).await;
        let details = serde_json::from_str::<Status>(&body).unwrap().details.unwrap();
        assert_eq!((details.name.as_str(), details.retry_after_seconds), ("a", 9));
    }

    #[tokio::test]
    async fn other_answers_are_left_as_they_are() {
        for (code, retry_after) in
            [(200, Some("7")), (429, None), (429, Some("Wed, 21 Oct 2015 07:28:00 GMT")), (404, Some("1"))]
        {
            assert_eq!(respond(code, retry_after, "text").await, (code, "text".to_owned()));
        }
    }
}

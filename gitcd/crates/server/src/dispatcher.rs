//! Entry point for requests: metrics, deadlines, routing. `Range` has a fast path here, since a router and a general gRPC server
//! cost more than the read itself. Requests that are not gRPC (JSON and pages) are routed separately.

mod fast_path;
mod protocol;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::future::RouteFuture;
use http::{HeaderMap, Request, Response, Version, header};
use hyper::body::Incoming;
use tokio::time::Sleep;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use self::fast_path::{Progress, RangeFastPath};
use crate::api::{self, Backend, status};
use crate::gateway::{self, Origins};
use crate::http::access;
use crate::metrics;
use crate::metrics::Requests;

/// Routes requests to the services and pages of a branch.
#[derive(Clone, Debug)]
pub(crate) struct Dispatcher {
    backend: Backend,
    routes: Router,
    pages: Router,
    origins: Origins,
    requests: Requests,
    /// Largest accepted message, in bytes.
    message_limit: usize,
    /// Whether reads go through the router like all others, which creates their spans.
    is_traced: bool,
}

impl Dispatcher {
    /// `routes` has the services of [`api::routes`], `pages` the pages for plain HTTP; web pages of `origins` may send requests.
    pub(crate) fn new(
        backend: Backend,
        routes: Router,
        pages: Router,
        origins: Origins,
        requests: Requests,
    ) -> Arc<Self> {
        let message_limit = api::message_limit(&backend.limits);
        let pages = pages.fallback(async || access::not_found());
        Arc::new(Self { backend, routes, pages, origins, requests, message_limit, is_traced: gitcd_core::trace::on() })
    }

    /// Answers a request.
    pub(crate) fn call(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        // gRPC needs HTTP/2.
        if request.version() < Version::HTTP_2 {
            return self.plain(request.map(Body::new));
        }
        if !protocol::is_grpc(&request) && !protocol::is_method(request.uri().path()) {
            return self.plain(request.map(Body::new));
        }
        if let Some(refused) = access::refuse_origin(&self.origins, &request).or_else(|| protocol::refuse(&request)) {
            return self.answered(refused);
        }
        let counted = self.requests.begin(&request);
        let (deadline, state) = if !self.is_traced && RangeFastPath::takes(&request) {
            (Deadline::Unread, State::FastPath(RangeFastPath::new(request)))
        } else {
            (Deadline::of(request.headers()), self.route(request.map(Body::new), counted.as_ref()))
        };
        Answer { front: self.clone(), counted, deadline, state }
    }

    /// Answers a request that is refused.
    fn answered(self: &Arc<Self>, response: Response<Body>) -> Answer {
        let state = State::Plain(Box::pin(std::future::ready(response)));
        Answer { front: self.clone(), counted: None, deadline: Deadline::Never, state }
    }

    /// Answers a gRPC request that the gateway has converted from JSON.
    fn grpc(self: &Arc<Self>, request: Request<Body>) -> Answer {
        let counted = self.requests.begin(&request);
        let deadline = Deadline::of(request.headers());
        let state = self.route(request, counted.as_ref());
        Answer { front: self.clone(), counted, deadline, state }
    }

    fn route(&self, request: Request<Body>, counted: Option<&metrics::Request>) -> State {
        let request = request.map(|body| match counted {
            Some(counted) => counted.receives(body),
            None => body,
        });
        State::Routed(self.routes.clone().call(request))
    }

    /// Answers a request that is not gRPC.
    fn plain(self: &Arc<Self>, request: Request<Body>) -> Answer {
        let front = self.clone();
        let answer = async move {
            let origin = request.headers().get(header::ORIGIN).cloned();
            let mut response = match access::refuse(&front.origins, &request) {
                Some(refused) => refused,
                None if gateway::takes(request.uri().path()) => {
                    let call = async |request| front.grpc(request).await.unwrap_or_else(|never| match never {});
                    gateway::answer(request, front.message_limit, call).await
                }
                None => front.pages.clone().oneshot(request).await.unwrap_or_else(|never| match never {}),
            };
            front.origins.add_headers(origin.as_ref(), response.headers_mut());
            response
        };
        Answer { front: self.clone(), counted: None, deadline: Deadline::Never, state: State::Plain(Box::pin(answer)) }
    }
}

/// Future of the response to a request.
pub(crate) struct Answer {
    front: Arc<Dispatcher>,
    counted: Option<metrics::Request>,
    deadline: Deadline,
    state: State,
}

enum State {
    FastPath(RangeFastPath),
    Routed(RouteFuture<Infallible>),
    Plain(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

/// When the client stops waiting.
enum Deadline {
    /// Not parsed yet: only a request that has to wait is worth a timer.
    Unread,
    Never,
    At(Pin<Box<Sleep>>),
}

impl Deadline {
    fn of(headers: &HeaderMap) -> Self {
        timeout(headers).map_or(Self::Never, |timeout| Self::At(Box::pin(tokio::time::sleep(timeout))))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let Self::At(deadline) = self else { return Poll::Pending };
        deadline.as_mut().poll(cx).map(|()| Status::deadline_exceeded("context deadline exceeded"))
    }
}

impl Answer {
    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<(Response<Body>, Option<Code>)> {
        loop {
            match &mut self.state {
                State::FastPath(quick) => match quick.poll(&self.front.backend, self.front.message_limit, cx) {
                    Poll::Ready(Progress::Answered(answer, code)) => return Poll::Ready((answer, Some(code))),
                    Poll::Ready(Progress::NotForUs(request)) => {
                        if matches!(self.deadline, Deadline::Unread) {
                            self.deadline = Deadline::of(request.headers());
                        }
                        self.state = self.front.route(request, self.counted.as_ref());
                    }
                    Poll::Pending => {
                        if matches!(self.deadline, Deadline::Unread)
                            && let Some(headers) = quick.waits_for()
                        {
                            self.deadline = Deadline::of(headers);
                        }
                        let status = ready!(self.deadline.poll(cx));
                        return Poll::Ready((status.clone().into_http(), Some(status.code())));
                    }
                },
                State::Plain(answer) => return answer.as_mut().poll(cx).map(|answer| (answer, None)),
                State::Routed(answer) => {
                    let answer = match Pin::new(answer).poll(cx) {
                        Poll::Ready(answer) => answer.unwrap_or_else(|never| match never {}),
                        Poll::Pending => ready!(self.deadline.poll(cx)).into_http(),
                    };
                    return Poll::Ready((status::of_transport(answer), None));
                }
            }
        }
    }
}

impl Future for Answer {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (answer, code) = ready!(self.poll_answer(cx));
        Poll::Ready(Ok(match (self.counted.take(), code) {
            (Some(counted), Some(code)) => {
                counted.end(code);
                answer
            }
            (Some(counted), None) => counted.answered(answer),
            (None, _) => answer,
        }))
    }
}

/// Returns the client's timeout, in gRPC's format: at most eight digits and a unit.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(3600 * number),
        "M" => Duration::from_secs(60 * number),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit_and_at_most_eight_digits() {
        let parse = |text: &str| {
            timeout(&HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), text.parse().unwrap())]))
        };
        assert_eq!(parse("2H"), Some(Duration::from_hours(2)));
        assert_eq!(parse("3M"), Some(Duration::from_mins(3)));
        assert_eq!(parse("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(parse("0m"), Some(Duration::ZERO));
        assert_eq!(parse("7u"), Some(Duration::from_micros(7)));
        assert_eq!(parse("12n"), Some(Duration::from_nanos(12)));
        for wrong in ["", "S", "5", "5x", "-5S", "123456789S", "5 S"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}

//! Streamed responses: a line of JSON for each message.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use tokio::sync::oneshot;
use tokio::time::Sleep;
use tonic::Status;

use super::frames::{self, Messages};
use super::headers::Forwarded;
use super::routes::Route;
use super::values::Values;
use super::{json_answer, status};

/// Receives the error of the client's first invalid message.
type Broken = oneshot::Receiver<Status>;

/// Answers a bidirectional streaming method.
pub(super) async fn both_ways<F>(
    route: &'static Route,
    forwarded: Forwarded,
    values: Values,
    call: impl FnOnce(Request<Body>) -> F,
) -> Response<Body>
where
    F: Future<Output = Response<Body>>,
{
    let (sender, broken) = oneshot::channel();
    let timeout = forwarded.timeout;
    let body = Body::from_stream(messages(route, values, sender));
    let response = call(forwarded.request(route, body)).await;
    answer(route, response, timeout, Some(broken)).await
}

/// Converts the client's messages to gRPC's, up to the first invalid one, whose error is sent to `sender`.
fn messages(
    route: &'static Route,
    values: Values,
    sender: oneshot::Sender<Status>,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    stream::unfold((values, sender), move |(mut values, sender)| async move {
        let object = match values.next().await {
            Ok(object) => object.map(|object| route.encode(&object)),
            Err(status) => Some(Err(status)),
        };
        match object? {
            Ok(message) => Some((Ok(frames::framed(&message)), (values, sender))),
            Err(status) => {
                // Fails if the response has already ended.
                let _ = sender.send(status);
                None
            }
        }
    })
}

/// Returns a line for each message of `response`. As in etcd, even the headers wait for the first line.
pub(super) async fn answer(
    route: &'static Route,
    response: Response<Body>,
    timeout: Option<Duration>,
    broken: Option<Broken>,
) -> Response<Body> {
    let messages = match Messages::of(response) {
        Ok(messages) => messages,
        Err(refused) => return status::first_of_stream(&refused),
    };
    let deadline = timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout)));
    let mut lines = Lines { route, messages, deadline, broken };
    match lines.next().await {
        Ok(Some(first)) => {
            let rest = stream::unfold(Some(lines), |lines| async {
                let mut lines = lines?;
                match lines.next().await {
                    Ok(line) => Some((line?, Some(lines))),
                    Err(refused) => Some((status::line(&refused).into_bytes(), None)),
                }
            });
            let all = stream::iter([first]).chain(rest).map(Ok::<_, std::convert::Infallible>);
            json_answer(Body::from_stream(all))
        }
        Ok(None) => Response::new(Body::empty()),
        Err(refused) => status::first_of_stream(&refused),
    }
}

struct Lines {
    route: &'static Route,
    messages: Messages,
    deadline: Option<Pin<Box<Sleep>>>,
    broken: Option<Broken>,
}

impl Lines {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let message = tokio::select! {
            // Responses to earlier messages go before the error of an invalid one.
            biased;
            message = self.messages.next() => message?,
            () = over(&mut self.deadline) => return Err(Status::deadline_exceeded("context deadline exceeded")),
            status = client_error(&mut self.broken) => return Err(status),
        };
        let Some(message) = message else {
            // The method may have ended because of an invalid message.
            return match self.broken.take().map(|mut broken| broken.try_recv()) {
                Some(Ok(status)) => Err(status),
                _ => Ok(None),
            };
        };
        let mut line = b"{\"result\":".to_vec();
        line.extend(self.route.decode(message)?);
        line.extend_from_slice(b"}\n");
        Ok(Some(line))
    }
}

async fn over(deadline: &mut Option<Pin<Box<Sleep>>>) {
    match deadline {
        Some(deadline) => deadline.as_mut().await,
        None => std::future::pending().await,
    }
}

async fn client_error(broken: &mut Option<Broken>) -> Status {
    if let Some(receiver) = broken {
        let outcome = receiver.await;
        *broken = None;
        if let Ok(status) = outcome {
            return status;
        }
    }
    // All messages were valid, and there are no more.
    std::future::pending().await
}

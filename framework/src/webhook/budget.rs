//! A limit for the memory that the bodies of reviews use.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// The default budget: eight of the largest reviews of an admission.
pub(super) const DEFAULT: usize = 64 << 20;
/// How long received bytes wait for a share of the budget. An apiserver waits for one to 30 seconds in all, and repeats a refused
/// request in that time.
const WAIT: Duration = Duration::from_secs(2);
/// How long a client may take to send a body. Apiservers have the whole body in memory.
const RECEIPT: Duration = Duration::from_secs(10);
/// How long the rest of a refused body is read.
const DISCARD: Duration = Duration::from_secs(2);

/// The bytes of request bodies that may be in memory at a time.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget {
    free: Arc<Semaphore>,
    total: u32,
}

impl BodyBudget {
    pub(super) fn new(bytes: usize) -> Self {
        // Zero would refuse all requests.
        let total = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
        Self { free: Arc::new(Semaphore::new(total as usize)), total }
    }

    /// Adds received bytes to the share of a body, in the order of the requests. A body that is larger than the budget gets all of it.
    /// `false` if there was no room in time.
    ///
    /// Bodies that wait for the shares of each other do so until one is refused, whose share is then free.
    async fn extend(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> bool {
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.min(self.total as usize - held);
        let Ok(Ok(more)) = timeout(WAIT, self.free.clone().acquire_many_owned(more as u32)).await else { return false };
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        true
    }
}

/// The budget, and the largest body of a route.
#[derive(Clone, Debug)]
pub(super) struct RouteLimit {
    pub(super) budget: BodyBudget,
    pub(super) largest: usize,
}

/// Receives the body of a request within the budget, of which only received bytes have a share: a silent client holds none. The
/// share is free again after the response was made: decoded objects are larger than the body.
pub(super) async fn receive(State(limit): State<RouteLimit>, request: Request, next: Next) -> Response {
    let (head, mut body) = request.into_parts();
    let mut share = None;
    match collect(&mut body, &limit, &mut share).await {
        Ok(received) => {
            let response = next.run(Request::from_parts(head, Body::from(received))).await;
            drop(share);
            response
        }
        Err(refused) => {
            drop(share);
            if matches!(refused, Refused::TooLarge | Refused::Busy) {
                discard(body, limit.largest).await;
            }
            refused.answer(limit.largest)
        }
    }
}

/// Why a body is not received.
enum Refused {
    TooLarge,
    Busy,
    Broken(axum::Error),
    Late,
}

impl Refused {
    fn answer(self, largest: usize) -> Response {
        match self {
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {largest} bytes\n")).into_response()
            }
            Self::Busy => busy(),
            Self::Broken(error) => {
                (StatusCode::BAD_REQUEST, format!("cannot read the body: {error}\n")).into_response()
            }
            Self::Late => {
                let message = format!("the body did not arrive within {} seconds\n", RECEIPT.as_secs());
                (StatusCode::REQUEST_TIMEOUT, message).into_response()
            }
        }
    }
}

/// Collects a body, and adds each frame to its share.
async fn collect(
    body: &mut Body,
    limit: &RouteLimit,
    share: &mut Option<OwnedSemaphorePermit>,
) -> Result<Bytes, Refused> {
    if body.size_hint().lower() > limit.largest as u64 {
        return Err(Refused::TooLarge);
    }
    let deadline = Instant::now() + RECEIPT;
    let mut received = BytesMut::new();
    while let Some(frame) = timeout_at(deadline, body.frame()).await.map_err(|_| Refused::Late)? {
        let Ok(data) = frame.map_err(Refused::Broken)?.into_data() else { continue };
        if received.len() + data.len() > limit.largest {
            return Err(Refused::TooLarge);
        }
        if !limit.budget.extend(share, data.len()).await {
            return Err(Refused::Busy);
        }
        received.extend_from_slice(&data);
    }
    Ok(received.freeze())
}

/// Reads the rest of a refused body, without keeping it: a client of HTTP/1.1 that still sends when the server closes the connection
/// gets a reset, and does not see the status. Stops after `most` bytes or [`DISCARD`]; the response is the same then.
async fn discard(mut body: Body, most: usize) {
    let rest = async {
        let mut left = most;
        while left > 0
            && let Some(Ok(frame)) = body.frame().await
        {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        }
    };
    _ = timeout(DISCARD, rest).await;
}

/// Clients of Kubernetes (client-go), such as apiservers, repeat a request after a response of 429 or 5xx with this header. The
/// status is not 429: no single client has sent too much.
fn busy() -> Response {
    tracing::warn!("refused a review: other reviews use the whole memory budget for bodies");
    let again = [(header::RETRY_AFTER, "1")];
    (StatusCode::SERVICE_UNAVAILABLE, again, "no memory for this review now: try again\n").into_response()
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use futures::StreamExt as _;
    use futures::future::join_all;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tower::ServiceExt as _;

    use super::*;

    /// A server that holds each request until it gets a permit, and counts the bytes that it holds.
    struct Holding {
        router: Router,
        go: Arc<Semaphore>,
        held: tokio::sync::watch::Receiver<(usize, usize)>,
    }

    fn held(budget: usize, largest: usize) -> Holding {
        let (go, (counts, held)) = (Arc::new(Semaphore::new(0)), tokio::sync::watch::channel((0, 0)));
        let (going, counts) = (go.clone(), Arc::new(counts));
        let answer = move |body: Bytes| {
            let (going, counts) = (going.clone(), counts.clone());
            async move {
                counts.send_modify(|(now, most)| {
                    *now += body.len();
                    *most = (*most).max(*now);
                });
                going.acquire().await.unwrap().forget();
                counts.send_modify(|(now, _)| *now -= body.len());
                body
            }
        };
        let limit = RouteLimit { budget: BodyBudget::new(budget), largest };
        let router = Router::new().route("/", post(answer)).layer(from_fn_with_state(limit, receive));
        Holding { router, go, held }
    }

    impl Holding {
        async fn send(&self, body: Body) -> (StatusCode, Option<String>) {
            let answer = self.router.clone().oneshot(Request::post("/").body(body).unwrap()).await.unwrap();
            let again = answer.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned());
            (answer.status(), again)
        }
    }

    fn of(bytes: usize) -> Body {
        Body::from(vec![b'x'; bytes])
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_beyond_the_budget_waits_and_is_then_refused_for_a_second() {
        let served = held(100, 80);
        let (mut counts, started) = (served.held.clone(), Instant::now());
        let refused = async {
            counts.wait_for(|(now, _)| *now == 60).await.unwrap();
            let refused = served.send(of(60)).await;
            assert!(started.elapsed() >= WAIT, "{:?}", started.elapsed());
            // Smaller ones fit beside the first.
            let small = async {
                counts.wait_for(|(now, _)| *now == 90).await.unwrap();
                served.go.add_permits(2);
            };
            assert_eq!(tokio::join!(served.send(of(30)), small).0, (StatusCode::OK, None));
            refused
        };
        let (first, refused) = tokio::join!(served.send(of(60)), refused);
        assert_eq!(first, (StatusCode::OK, None));
        assert_eq!(refused, (StatusCode::SERVICE_UNAVAILABLE, Some("1".to_owned())));
        served.go.add_permits(1);
        assert_eq!(served.send(of(60)).await.0, StatusCode::OK, "the shares are free again");
    }

    #[tokio::test(start_paused = true)]
    async fn many_bodies_never_need_more_than_the_budget_and_all_are_answered() {
        let served = held(100, 80);
        let mut counts = served.held.clone();
        let release = async {
            // Nothing is answered yet, so the sum rises until the next body has no room.
            while timeout(Duration::from_millis(200), counts.changed()).await.is_ok() {}
            let (now, _) = *counts.borrow();
            served.go.add_permits(1000);
            now
        };
        let (all, together) = tokio::join!(join_all((0..200).map(|number| served.send(of(number % 81)))), release);
        assert!((60..=100).contains(&together), "{together}");
        assert!(all.iter().all(|answer| *answer == (StatusCode::OK, None)), "{all:?}");
        let (now, most) = *served.held.borrow();
        assert!(now == 0 && most >= together && most <= 100, "{now} {most}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_larger_than_the_budget_is_received_alone_and_one_larger_than_its_limit_is_not() {
        let served = held(10, 80);
        let mut counts = served.held.clone();
        let other = async {
            counts.wait_for(|(now, _)| *now == 80).await.unwrap();
            let refused = served.send(of(1)).await;
            served.go.add_permits(1);
            refused
        };
        let (large, other) = tokio::join!(served.send(of(80)), other);
        assert_eq!((large.0, other.0), (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(served.send(of(81)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        // Without a length.
        let chunks = |count: usize| {
            Body::from_stream(futures::stream::iter(0..count).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 40])))
        };
        assert_eq!(served.send(chunks(3)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        served.go.add_permits(1);
        assert_eq!(served.send(chunks(2)).await.0, StatusCode::OK);
    }

    // The clock of a test cannot be paused while it waits for the kernel.
    #[tokio::test]
    async fn a_client_of_http_1_that_sends_a_refused_body_sees_the_status() {
        const LARGEST: usize = 4 << 20;
        let served = held(LARGEST, LARGEST);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(axum::serve(listener, served.router.clone()).into_future());
        let post = async |bytes: usize| {
            let mut client = TcpStream::connect(address).await.unwrap();
            let head = format!("POST / HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: {bytes}\r\n\r\n");
            client.write_all(head.as_bytes()).await.unwrap();
            client.write_all(&vec![b'x'; bytes]).await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            String::from_utf8(answer).unwrap().lines().next().unwrap().to_owned()
        };
        assert_eq!(post(LARGEST + 1).await, "HTTP/1.1 413 Payload Too Large");
        let mut counts = served.held.clone();
        let other = async {
            counts.wait_for(|(now, _)| *now == 1).await.unwrap();
            let refused = post(LARGEST).await;
            served.go.add_permits(1);
            refused
        };
        let (first, refused) = tokio::join!(served.send(of(1)), other);
        assert_eq!((first.0, &*refused), (StatusCode::OK, "HTTP/1.1 503 Service Unavailable"));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_that_does_not_end_is_not_read_for_long() {
        let chunks = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[b'x'; 40])));
        assert_eq!(held(100, 80).send(Body::from_stream(chunks)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        let started = Instant::now();
        discard(Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>()), 80).await;
        assert!(started.elapsed() >= DISCARD && started.elapsed() < DISCARD * 5, "{:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_gives_its_share_back() {
        let served = held(100, 100);
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let broken = Body::from_stream(futures::stream::iter([Err::<Bytes, _>(std::io::Error::other("reset"))]));
        assert_eq!(served.send(silent).await.0, StatusCode::REQUEST_TIMEOUT);
        assert_eq!(served.send(broken).await.0, StatusCode::BAD_REQUEST);
        served.go.add_permits(1);
        assert_eq!(served.send(of(100)).await.0, StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_send_nothing_hold_no_share() {
        let served = held(100, 100);
        let silent = || Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let sending = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            served.go.add_permits(1);
            served.send(of(100)).await.0
        };
        let (one, two, sent) = tokio::join!(served.send(silent()), served.send(silent()), sending);
        assert_eq!([one.0, two.0, sent], [StatusCode::REQUEST_TIMEOUT, StatusCode::REQUEST_TIMEOUT, StatusCode::OK]);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_wait_for_the_shares_of_each_other_are_not_all_refused() {
        let served = held(100, 80);
        let slow = || {
            let frames = futures::stream::iter(0..2).then(|_| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Ok::<_, std::io::Error>(vec![b'x'; 40])
            });
            served.send(Body::from_stream(frames))
        };
        served.go.add_permits(2);
        let (one, two) = tokio::join!(slow(), slow());
        let mut statuses = [one.0, two.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE]);
        let (now, most) = *served.held.borrow();
        assert!(now == 0 && most == 80, "{now} {most}");
        served.go.add_permits(1);
        assert_eq!(served.send(of(80)).await.0, StatusCode::OK, "the shares are free again");
    }
}

//! Receives audit events: as a webhook backend of kube-apiserver, and from its log file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use gitcd_core::blocking;
use gitcd_engine::audit::event::EventList;
use gitcd_engine::audit::follow::{Follower, INTERVAL};
use gitcd_engine::audit::{self, Audit};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Largest body of a request: 32 events, with an object of 500 KiB in both request and response.
const MAX_BODY: usize = 32 << 20;
/// Requests whose bodies are in memory at the same time; others wait.
const CONCURRENT: usize = 2;

/// How long a body may take to arrive, and how long a request waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where audit events come from.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// How they are joined to revisions; `None` if commits name no actors.
    pub settings: Option<audit::Settings>,
    /// Listeners for the webhook.
    pub listen: Vec<crate::config::Listen>,
    /// A log file of kube-apiserver.
    pub log_file: Option<PathBuf>,
}

/// The receiver of one branch.
#[derive(Debug)]
struct Receiver {
    audit: Arc<Audit>,
    bodies: Semaphore,
}

/// Returns the routes of a listener: `POST /audit` with an `EventList` of `audit.k8s.io/v1` in JSON.
pub(crate) fn routes(audit: Arc<Audit>) -> Router {
    let receiver = Arc::new(Receiver { audit, bodies: Semaphore::new(CONCURRENT) });
    Router::new().route("/audit", post(receive)).route("/audit/", post(receive)).with_state(receiver)
}

async fn receive(State(receiver): State<Arc<Receiver>>, request: Request) -> Response {
    let refuse = |status: StatusCode, text: String| {
        receiver.audit.refuse();
        tracing::warn!(error = text, "audit events were not received: their revisions are committed without an actor");
        (status, text + "\n").into_response()
    };
    // Before the body is read.
    let Ok(Ok(_permit)) = timeout(PATIENCE, receiver.bodies.acquire()).await else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "other requests with audit events take too long".to_owned());
    };
    let body: Limited<Body> = Limited::new(request.into_body(), MAX_BODY);
    let Ok(body) = timeout(PATIENCE, body.collect()).await else {
        let text = format!("the body did not arrive within {} s", PATIENCE.as_secs());
        return refuse(StatusCode::REQUEST_TIMEOUT, text);
    };
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let text = format!(
                "the body is larger than {MAX_BODY} bytes; lower --audit-webhook-batch-max-size of kube-apiserver"
            );
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")),
    };
    // A large list takes a while.
    match blocking::run("read audit events", move || EventList::parse(&body)).await {
        Ok(Ok(list)) => {
            receiver.audit.add(&list.items);
            StatusCode::OK.into_response()
        }
        Ok(Err(error)) => refuse(StatusCode::BAD_REQUEST, error.to_string()),
        Err(panicked) => refuse(StatusCode::INTERNAL_SERVER_ERROR, panicked.to_string()),
    }
}

/// Follows a log file until the task is aborted.
pub(crate) async fn follow(audit: Arc<Audit>, path: PathBuf) {
    let (mut follower, mut has_failed) = (Follower::new(path), false);
    loop {
        let audit = audit.clone();
        let step = blocking::run("read the audit log", move || {
            let result = follower.step(&audit);
            (follower, result)
        });
        // The supervisor starts it again.
        let (again, result) = step.await.unwrap_or_else(|panicked| panic!("{panicked}"));
        follower = again;
        if let Err(error) = &result
            && !has_failed
        {
            let path = follower.path();
            tracing::warn!(%error, ?path, "cannot read the audit log: revisions are committed without an actor");
        }
        has_failed = result.is_err();
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;
    use gitcd_core::keyspace::KeySpace;
    use tower::ServiceExt as _;

    use super::*;

    async fn post_body(body: Body) -> (StatusCode, String, Arc<Audit>) {
        let audit = Arc::new(Audit::new(audit::Settings::default(), KeySpace::new("/registry", [""; 0])));
        let request = Request::post("/audit?timeout=30s").body(body).expect("the request is valid");
        let response = routes(audit.clone()).oneshot(request).await.expect("it answers");
        let status = response.status();
        let body = response.into_body().collect().await.expect("the body is in memory").to_bytes();
        (status, String::from_utf8_lossy(&body).into_owned(), audit)
    }

    fn counted(audit: &Audit) -> (u64, u64) {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
        (load(&audit.counters().events), load(&audit.counters().invalid))
    }

    #[tokio::test]
    async fn events_are_counted_and_other_bodies_are_refused() {
        let list = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[{"stage":"ResponseComplete"},{}]}"#;
        let (status, _, audit) = post_body(list.into()).await;
        assert_eq!((status, counted(&audit)), (StatusCode::OK, (2, 0)));
        let (status, said, audit) = post_body("{}".into()).await;
        assert_eq!((status, counted(&audit)), (StatusCode::BAD_REQUEST, (0, 1)), "{said}");
    }

    /// Two senders that stop in the middle of a body do not keep others away.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let audit = Arc::new(Audit::new(audit::Settings::default(), KeySpace::new("/registry", [""; 0])));
        let routes = routes(audit);
        let post = |body: Body| {
            let request = Request::post("/audit").body(body).expect("the request is valid");
            let routes = routes.clone();
            async move { routes.oneshot(request).await.expect("it answers").status() }
        };
        let silent = || Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::convert::Infallible>>());
        let list = r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[]}"#;
        let sent = tokio::join!(post(silent()), post(silent()), async {
            tokio::time::sleep(PATIENCE / 2).await;
            post(list.into()).await
        });
        assert_eq!(sent, (StatusCode::REQUEST_TIMEOUT, StatusCode::REQUEST_TIMEOUT, StatusCode::OK));
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_is_refused_with_the_remedy() {
        let chunk = bytes::Bytes::from(vec![b' '; 1 << 20]);
        let chunks = futures::stream::iter((0..40).map(move |_| Ok::<_, std::convert::Infallible>(chunk.clone())));
        let (status, said, _) = post_body(Body::from_stream(chunks)).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(said.contains("--audit-webhook-batch-max-size"), "{said}");
    }
}

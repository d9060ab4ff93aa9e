//! When a lease is released, and when a term ends: tests without a cluster.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use super::{Election, Role, Settings};
use crate::clock::{Clock, Moment};

/// The clock of tokio's timers, plus the time for which the machine slept.
struct Timers {
    start: Instant,
    slept: AtomicU64,
}

impl Timers {
    fn start() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), slept: AtomicU64::new(0) })
    }
}

impl Clock for Timers {
    fn now(&self) -> Moment {
        let slept = Duration::from_secs(self.slept.load(Ordering::SeqCst));
        Moment::since_start(Duration::from_secs(1) + self.start.elapsed() + slept)
    }
}

/// A lease, its writes, and when it was last released.
#[derive(Default)]
struct Server {
    lease: Option<Value>,
    writes: u32,
    free: Option<Instant>,
}

async fn answer(server: Arc<Mutex<Server>>, request: Request<Body>) -> Result<Response<Body>, BoxError> {
    let method = request.method().clone();
    let body = request.into_body().collect_bytes().await?;
    let mut server = server.lock().unwrap();
    if method != Method::GET {
        let mut lease: Value = serde_json::from_slice(&body)?;
        let there = server.lease.as_ref().map(|there| &there["metadata"]["resourceVersion"]);
        if there.is_some_and(|there| lease["metadata"]["resourceVersion"] != *there) {
            let conflict =
                json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "message": "", "code": 409});
            return Ok(Response::builder().status(409).body(Body::from(conflict.to_string().into_bytes()))?);
        }
        server.writes += 1;
        lease["metadata"]["resourceVersion"] = server.writes.to_string().into();
        server.free = (lease["spec"]["holderIdentity"] == "").then(Instant::now);
        server.lease = Some(lease);
    }
    let gone = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404});
    let (code, body) = server.lease.as_ref().map_or((404, &gone), |lease| (200, lease));
    Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes()))?)
}

fn election(server: Arc<Mutex<Server>>, clock: Arc<Timers>) -> Election {
    let client = Client::new(tower::service_fn(move |request| answer(server.clone(), request)), "default");
    let [every, work, duration] = [100, 1_000, 2_000].map(Duration::from_millis);
    Election::new(client, Settings { duration, work, every, ..Settings::new("x", "y") }, clock).unwrap()
}

/// Returns how long after `stop` the lease is released, if a request with this method was dropped just before.
async fn given_back_after(method: Method) -> Duration {
    let server = Arc::new(Mutex::new(Server::default()));
    let answers = server.clone();
    let election = election(answers, Timers::start());
    let (fence, mut role) = (election.fence(), election.role());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(election.run(async { drop(stopped.await) }));
    role.wait_for(|role| *role != Role::Standby).await.unwrap();

    let mut service =
        fence.layer(tower::service_fn(async |_: Request<()>| std::future::pending::<Result<(), BoxError>>().await));
    let request = service.call(Request::builder().method(method).body(()).unwrap());
    assert!(request.now_or_never().is_none(), "the request is in flight when it is dropped");
    let ended = Instant::now();
    stop.send(()).unwrap();
    running.await.unwrap();
    let free = server.lock().unwrap().free.expect("the lease was released");
    free - ended
}

#[tokio::test]
async fn a_lease_is_kept_until_a_write_that_was_given_up_is_over() {
    let (after_a_read, after_a_write) = tokio::join!(given_back_after(Method::GET), given_back_after(Method::PATCH));
    // Such a write has as long as one that the end of a lease cuts short: `duration` less `work`, a second.
    let second = Duration::from_secs(1);
    assert!(after_a_read < second && after_a_write >= second, "{after_a_read:?} {after_a_write:?}");
}

#[tokio::test]
async fn a_term_ends_if_another_candidate_had_the_lease_while_the_machine_slept() {
    let (server, clock) = (Arc::new(Mutex::new(Server::default())), Timers::start());
    let election = election(server.clone(), clock.clone());
    let mut role = election.role();
    let running = tokio::spawn(election.run(std::future::pending()));
    role.wait_for(|role| *role == Role::Leading { term: 1 }).await.unwrap();
    {
        // Another replica acquired it, worked, and released it.
        let mut server = server.lock().unwrap();
        server.writes += 2;
        let version = server.writes.to_string();
        let lease = server.lease.as_mut().unwrap();
        lease["metadata"]["resourceVersion"] = version.into();
        lease["spec"]["holderIdentity"] = "".into();
        clock.slept.store(3_600, Ordering::SeqCst);
    }
    // Timers stand still while the machine sleeps.
    let next = role.wait_for(|role| *role == Role::Leading { term: 2 });
    let next = tokio::time::timeout(Duration::from_secs(5), next).await;
    assert!(next.is_ok(), "the first term goes on after the sleep");
    running.abort();
}

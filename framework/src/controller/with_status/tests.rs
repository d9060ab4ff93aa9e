//! Tests of what is written after a reconcile, with a scripted apiserver.

use std::sync::Mutex;

use http_body_util::BodyExt as _;
use kube::CustomResource;
use kube::client::Body;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::cache::{Caches, Scope};
use crate::impl_conditions;
use crate::status::{Recorder, conditions_schema};

#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(group = "framework.test", version = "v1", kind = "Tank", namespaced, status = "TankStatus")]
struct TankSpec {}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
struct TankStatus {
    level: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_another_writer: Option<i32>,
    observed_generation: Option<i64>,
    #[schemars(schema_with = "conditions_schema")]
    conditions: Vec<Condition>,
}

impl_conditions!(TankStatus);

struct Tanks(Result<(), &'static str>);

impl StatusReconciler for Tanks {
    type Object = Tank;
    type Error = kube::Error;

    async fn reconcile(&self, _: Arc<Tank>, status: &mut TankStatus, _: Context) -> kube::Result<(Report, Action)> {
        status.level = 7;
        self.0.map_err(failed)?;
        Ok((Report::ready("Full", ""), Action::Change))
    }

    fn keep_own(&self, status: &mut TankStatus) {
        status.of_another_writer = None;
    }
}

fn failed(message: &str) -> kube::Error {
    kube::Error::Service(message.to_owned().into())
}

/// Reconciles a tank whose status has `of_another_writer`, and returns the requests and what became of it.
async fn reconcile(result: Result<(), &'static str>, is_refused: bool) -> (Vec<Value>, Result<Action, String>) {
    let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = requests.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let log = log.clone();
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            log.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
            if is_refused {
                return Err(std::io::Error::other("the status is refused"));
            }
            let mut answer: Value = serde_json::from_slice(&body).unwrap();
            answer["spec"] = json!({});
            Ok(http::Response::new(Body::from(answer.to_string().into_bytes())))
        }
    });
    let cache = Caches::new(Scope::All).cache();
    let recorder = Recorder::new("tanks", None);
    let seat =
        Seat { cache, field_manager: "tanks".into(), recorder: recorder.clone(), events: false, pause_condition: None };
    let tanks = WithStatus::new(Tanks(result), &seat);
    let mut tank = Tank::new("a", TankSpec {});
    (tank.metadata.namespace, tank.metadata.uid) = (Some("x".to_owned()), Some("1".to_owned()));
    tank.status = Some(TankStatus { of_another_writer: Some(1), ..TankStatus::default() });
    let context = Context {
        client: Client::new(service, "default"),
        key: Key::of(&tank),
        lane: crate::queue::Lane::Changed,
        failures: 0,
        term: crate::controller::term::Acting::begin().term(),
        field_manager: seat.field_manager,
        recorder,
        wall_clock: crate::clock::WallClock::default(),
        owned: Arc::new([]),
    };
    let outcome = tanks.reconcile(Arc::new(tank), context).await.map_err(|error| chain(&error));
    let requests = requests.lock().unwrap().clone();
    (requests, outcome)
}

#[tokio::test]
async fn the_status_is_written_once_whatever_the_result_without_the_fields_of_others() {
    for (result, reason) in [(Ok(()), "Full"), (Err("the pump"), "ApiUnreachable")] {
        let (requests, outcome) = reconcile(result, false).await;
        let [request] = requests.as_slice() else { panic!("one request: {requests:?}") };
        let status = &request["status"];
        assert_eq!((&status["level"], &status["conditions"][0]["reason"]), (&json!(7), &json!(reason)));
        assert_eq!(status.get("ofAnotherWriter"), None);
        assert_eq!(outcome.is_ok(), result.is_ok());
    }
}

#[tokio::test]
async fn a_failed_write_is_a_failure_and_hides_no_other() {
    let (_, outcome) = reconcile(Ok(()), true).await;
    assert!(outcome.clone().unwrap_err().contains("the status is refused"), "{outcome:?}");
    let (_, outcome) = reconcile(Err("the pump"), true).await;
    let error = outcome.unwrap_err();
    assert!(error.contains("the pump") && !error.contains("refused"), "{error}");
}

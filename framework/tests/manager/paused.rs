//! Objects that are paused, and what their statuses show.

use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use trishanku_framework::cache::Scope;
use trishanku_framework::queue::Backoff;
use trishanku_framework::status::{Condition, Report};
use trishanku_framework::{Action, Context, Controller, Manager, Reported, StatusReconciler};
use trishanku_testkit::wait;

use crate::support::{Log, Problem, Tank, TankStatus, cluster, create, run, tanks};

const PAUSED: &str = "Paused";

/// Fails at level 3, and at level 4 without a report.
struct Levels(Log);

impl StatusReconciler for Levels {
    type Object = Tank;
    type Error = Problem;

    async fn reconcile(&self, tank: Arc<Tank>, status: &mut TankStatus, _: Context) -> Reported<Action, Problem> {
        self.0.add(format!("level {}", tank.spec.level));
        status.level = tank.spec.level;
        match tank.spec.level {
            3 => Err(Problem::Broken),
            4 => Err(Problem::Terminal),
            _ => Ok((Report::ready("Full", ""), Action::Change)),
        }
    }

    fn is_reported(&self, error: &Problem) -> bool {
        !matches!(error, Problem::Terminal)
    }
}

fn condition<'a>(tank: &'a Tank, type_: &str) -> Option<&'a Condition> {
    tank.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
}

async fn until(api: &Api<Tank>, type_: &str, status: &str, reason: &str) -> Tank {
    let is = |tank: &Tank| condition(tank, type_).is_some_and(|one| (&*one.status, &*one.reason) == (status, reason));
    wait::until_object(api, "a", &format!("it is {type_}={status} {reason}"), is).await.unwrap()
}

#[tokio::test]
async fn a_pause_is_a_condition_that_changes_no_other_and_ends_with_the_next_reconcile_whatever_its_result() {
    let (cluster, namespace) = cluster("paused").await;
    let (api, log) = (tanks(cluster.client(), &namespace), Log::default());
    let logs = log.clone();
    let controller = Controller::with_status("test", move |_| Levels(logs))
        .paused_by("framework.test/paused")
        .pause_condition(PAUSED)
        .backoff(Backoff { first: Duration::from_millis(50), most: Duration::from_millis(400) });
    let running = run(Manager::with_scope(cluster.config(), Scope::namespaces([&namespace])).controller(controller));
    create(&api, &["a"]).await;
    let ready = until(&api, PAUSED, "False", "NotPaused").await;
    let set = async |paused: bool, level: i32| {
        let annotations = json!({"framework.test/paused": paused.to_string()});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}, "spec": {"level": level}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    };
    set(true, 1).await;
    let paused = until(&api, PAUSED, "True", "Paused").await;
    let status = |tank: &Tank| tank.status.clone().unwrap();
    assert_eq!(condition(&paused, "Ready"), condition(&ready, "Ready"), "nothing else is known");
    assert_eq!((status(&paused).observed_generation, status(&paused).level), (status(&ready).observed_generation, 0));
    assert_eq!(condition(&paused, PAUSED).unwrap().observed_generation, paused.metadata.generation);
    set(false, 2).await;
    let resumed = until(&api, PAUSED, "False", "NotPaused").await;
    assert_eq!((status(&resumed).level, status(&resumed).observed_generation), (2, resumed.metadata.generation));
    set(true, 3).await;
    until(&api, PAUSED, "True", "Paused").await;
    set(false, 3).await;
    until(&api, "Reconciling", "True", "Broken").await;
    let reported = until(&api, PAUSED, "False", "NotPaused").await;
    set(true, 4).await;
    until(&api, PAUSED, "True", "Paused").await;
    set(false, 4).await;
    let unreported = until(&api, PAUSED, "False", "NotPaused").await;
    assert_eq!(condition(&unreported, "Reconciling"), condition(&reported, "Reconciling"), "nothing else is reported");
    assert_ne!(status(&unreported).level, 4);
    assert!(log.times("level 1").is_empty(), "it was paused: {:?}", log.all());
    running.stop().await;
}

#[test]
#[should_panic(expected = "Ready is not a condition of your own")]
fn the_conditions_of_reports_are_not_those_of_pauses() {
    drop(Controller::with_status("test", |_| Levels(Log::default())).pause_condition("Ready"));
}

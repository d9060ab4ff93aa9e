//! Reconcilers whose statuses the controller writes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use trishanku_framework::apply::Owned;
use trishanku_framework::cache::Scope;
use trishanku_framework::queue::Backoff;
use trishanku_framework::status::{Condition, Report};
use trishanku_framework::{Action, CleanedUp, Context, Controller, Failure, Manager, Retry, StatusReconciler};
use trishanku_testkit::wait;

use crate::support::{Log, Tank, TankStatus, cluster, create, run, tanks};

/// Applies a map for each tank. The level says what becomes of it.
struct Reported {
    maps: Owned<ConfigMap>,
    log: Log,
}

const BROKEN: i32 = 1;
const HANGS: i32 = 2;
const RACED: i32 = 3;
const LEAKING: i32 = 8;
/// A condition besides those of the framework.
const TIGHT: &str = "Tight";

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the pump is broken")]
    Broken,
    #[error("another writer was faster")]
    Raced,
}

impl Failure for Problem {
    fn reason(&self) -> &'static str {
        match self {
            Self::Broken => "Broken",
            Self::Raced => "Raced",
        }
    }

    fn retry(&self) -> Retry {
        Retry::BackOff
    }
}

impl StatusReconciler for Reported {
    type Object = Tank;
    type Error = Problem;

    async fn reconcile(
        &self,
        tank: Arc<Tank>,
        status: &mut TankStatus,
        context: Context,
    ) -> Result<(Report, Action), Problem> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(tank.name_any());
        context.apply_set(&*tank).apply(map, &self.maps).await.map_err(|_| Problem::Raced)?;
        status.level = tank.spec.level;
        match tank.spec.level {
            BROKEN => Err(Problem::Broken),
            HANGS => std::future::pending().await,
            RACED => {
                self.log.add("raced");
                Err(Problem::Raced)
            }
            level => {
                let report = Report::ready("Level", format!("at {level}"));
                Ok((report.and(TIGHT, level != LEAKING, "Measured", ""), Action::Change))
            }
        }
    }

    fn finalizer(&self) -> Option<&str> {
        Some("framework.test/reported")
    }

    async fn clean_up(
        &self,
        tank: Arc<Tank>,
        status: &mut TankStatus,
        _: Context,
    ) -> Result<(Report, CleanedUp), Problem> {
        status.level -= 1;
        let report = Report::reconciling("Draining", "");
        Ok((report, if tank.spec.level > 0 { CleanedUp::NotYet(Duration::from_millis(50)) } else { CleanedUp::Yes }))
    }

    fn conditions(&self) -> &[&str] {
        &[TIGHT]
    }

    fn is_reported(&self, problem: &Problem) -> bool {
        !matches!(problem, Problem::Raced)
    }
}

/// Whether the status has this level, and `Ready` this reason, for the present generation.
fn says(level: i32, reason: &'static str) -> impl Fn(&Tank) -> bool {
    move |tank| {
        let Some(status) = &tank.status else { return false };
        let mut conditions = status.conditions.iter().filter(|condition| condition.type_ == "Ready");
        let generation = tank.metadata.generation;
        status.level == level
            && conditions.any(|found| found.reason == reason && found.observed_generation == generation)
    }
}

fn conditions(tank: &Tank) -> impl Iterator<Item = &Condition> {
    tank.status.iter().flat_map(|status| &status.conditions)
}

/// Returns the condition that the controller has besides those of the framework.
fn tight(tank: &Tank) -> Condition {
    conditions(tank).find(|found| found.type_ == TIGHT).unwrap().clone()
}

#[tokio::test]
async fn what_a_reconcile_returns_is_in_the_status_whatever_becomes_of_it() {
    let (cluster, namespace) = cluster("reported").await;
    let api = tanks(cluster.client(), &namespace);
    let manager = Manager::with_scope(cluster.config(), Scope::namespaces([&namespace]));
    let log = Log::default();
    let logs = log.clone();
    let controller = Controller::with_status("reported", move |kinds| Reported { maps: kinds.owned(), log: logs })
        .backoff(Backoff { first: Duration::from_millis(50), most: Duration::from_millis(400) })
        .time_limit(Duration::from_secs(2));
    let running = run(manager.controller(controller));
    create(&api, &["a"]).await;
    let set = async |level: i32| {
        let patch = Patch::Merge(json!({"spec": {"level": level}}));
        api.patch("a", &PatchParams::default(), &patch).await.unwrap();
    };
    let full = wait::until_object(&api, "a", "a success", says(0, "Level")).await.unwrap();
    assert_eq!((&*tight(&full).status, tight(&full).observed_generation), ("True", full.metadata.generation));
    set(BROKEN).await;
    let broken = wait::until_object(&api, "a", "a failure, with what was found out before it", says(1, "Broken"));
    let broken = broken.await.unwrap();
    let messages = conditions(&broken).filter(|found| found.type_ != TIGHT).map(|found| &*found.message);
    assert_eq!(messages.collect::<Vec<_>>(), ["the pump is broken", "the pump is broken"]);
    assert_eq!(tight(&broken), tight(&full), "an error does not name it");
    // What it found out is lost, since it was cancelled.
    set(HANGS).await;
    wait::until_object(&api, "a", "a time-out", says(1, "TimedOut")).await.unwrap();
    set(7).await;
    let again = wait::until_object(&api, "a", "another success", says(7, "Level")).await.unwrap();
    let unchanged = Condition { observed_generation: again.metadata.generation, ..tight(&full) };
    assert_eq!(tight(&again), unchanged, "the time is that of the last transition");

    // Nothing of the status changes, although the reconcile fails again and again.
    let before = api.get("a").await.unwrap();
    set(RACED).await;
    log.until(3, "raced").await;
    let next =
        api.patch("a", &PatchParams::default(), &Patch::Merge(json!({"spec": {"level": LEAKING}}))).await.unwrap();
    assert_eq!(serde_json::to_value(&next.status).unwrap(), serde_json::to_value(&before.status).unwrap());
    let leaking = wait::until_object(&api, "a", "a third success", says(LEAKING, "Level")).await.unwrap();
    assert_eq!((&*tight(&leaking).status, &*tight(&leaking).reason), ("False", "Measured"));

    // The controller is the field manager of both.
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &namespace);
    let map = maps.get("a").await.unwrap();
    let managers = |fields: Option<&Vec<_>>| -> Vec<String> {
        let named = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| entry.manager.clone();
        fields.into_iter().flatten().filter_map(named).collect()
    };
    assert_eq!(managers(map.metadata.managed_fields.as_ref()), ["reported"]);
    // A map that a user deletes is applied again, because it is owned.
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let again = |found: &ConfigMap| found.metadata.uid != map.metadata.uid;
    wait::until_object(&maps, "a", "it is there again", again).await.unwrap();

    // The cleanup is reported, too, until it is done.
    api.delete("a", &DeleteParams::default()).await.unwrap();
    wait::until_object(&api, "a", "the level sinks", says(4, "Draining")).await.unwrap();
    set(0).await;
    wait::until_gone(&api, "a").await.unwrap();
    running.stop().await;
}

//! The loop: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use trishanku_framework::apply::ApplySet;
use trishanku_framework::cache::Cache;
use trishanku_framework::status::{Report, StatusWriter, settle};
use trishanku_framework::{Action, CleanedUp, Context, Error, Key, Manager, Reconciler};

use crate::plan::{Plan, level_after, plan};
use crate::tank::{Tank, TankStatus};

/// Keeps each tank at its level. The valve of a tank is a `ConfigMap` of the same name, which the tank owns.
pub(crate) struct TankReconciler {
    tanks: Arc<Cache<Tank>>,
    valves: Arc<Cache<ConfigMap>>,
    status: StatusWriter,
}

impl TankReconciler {
    pub(crate) fn new(manager: &Manager) -> Self {
        Self { tanks: manager.cache(), valves: manager.cache(), status: StatusWriter::new("watertank") }
    }

    /// Returns whether the valve is open, and the present level, computed from the last measurement.
    fn observe(&self, tank: &Tank, key: &Key) -> (bool, TankStatus) {
        let data = self.valves.get(key).and_then(|valve| valve.data.clone()).unwrap_or_default();
        let open = data.get("position").is_some_and(|position| position == "open");
        let (before, now) = (tank.status.clone().unwrap_or_default(), Timestamp::now());
        let seconds = before.measured_at.as_ref().map_or(0.0, |then| now.duration_since(then.0).as_secs_f64());
        let level = (level_after(seconds, before.level, before.rate, &tank.spec) * 10.0).round() / 10.0;
        (open, TankStatus { level, measured_at: Some(MicroTime(now)), ..before })
    }

    async fn converge(&self, tank: &Tank, desired: u32, context: &Context) -> Result<Plan, Error> {
        let (open, mut status) = self.observe(tank, &context.key);
        let plan = plan(status.level, open, desired, &tank.spec);
        let mut valve = ConfigMap::default();
        valve.metadata.name = Some(context.key.name().to_owned());
        valve.data = Some([("position".to_owned(), if plan.open { "open" } else { "closed" }.to_owned())].into());
        let turned = ApplySet::of(tank, context.client.clone(), "watertank").apply(valve, &self.valves).await;
        let inflow = if turned.as_ref().map_or(open, |_| plan.open) { tank.spec.inflow } else { 0 };
        status.rate = f64::from(inflow) - f64::from(tank.spec.outflow);
        // Users look for failures in the status, so it is written in either case.
        let report = if turned.is_ok() { plan.report.clone() } else { Report::of(&turned) };
        let before = tank.status.as_ref();
        let written = self.status.write(&context.client, &self.tanks, tank, before, status, &report).await;
        settle(&context.key, turned.map(|_| plan).map_err(Error::from), written)
    }
}

impl Reconciler for TankReconciler {
    type Object = Tank;
    type Error = Error;

    async fn reconcile(&self, tank: Arc<Tank>, context: Context) -> Result<Action, Error> {
        let plan = self.converge(&tank, tank.spec.desired, &context).await?;
        Ok(Action::After(plan.look_again))
    }

    fn finalizer(&self) -> Option<&str> {
        Some("plant.example.org/drain")
    }

    /// Drains the tank before it is deleted.
    async fn clean_up(&self, tank: Arc<Tank>, context: Context) -> Result<CleanedUp, Error> {
        let plan = self.converge(&tank, 0, &context).await?;
        Ok(if plan.level > 0.0 { CleanedUp::NotYet(plan.look_again) } else { CleanedUp::Yes })
    }
}

//! The loop: observe, plan, apply, report.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use trishanku_framework::apply::Owned;
use trishanku_framework::{Action, CleanedUp, Context, Error, Reported, Result, StatusReconciler};

use crate::plan::{Plan, level_after, plan};
use crate::tank::{Tank, TankStatus};

/// Keeps each tank at its level. The valve of a tank is a `ConfigMap` of the same name, which the tank owns.
pub(crate) struct TankReconciler {
    pub(crate) valves: Owned<ConfigMap>,
}

impl TankReconciler {
    /// Puts the present level into the status, computed from the last measurement, and returns whether the valve is open.
    fn observe(&self, tank: &Tank, status: &mut TankStatus, context: &Context) -> bool {
        let now = context.now();
        let seconds = status.measured_at.map_or(0.0, |then| now.duration_since(then).as_secs_f64());
        status.level = (level_after(seconds, status.level, status.rate, &tank.spec) * 10.0).round() / 10.0;
        status.measured_at = Some(now);
        let data = self.valves.get(&context.key).and_then(|valve| valve.data.clone()).unwrap_or_default();
        data.get("position").is_some_and(|position| position == "open")
    }

    async fn converge(&self, tank: &Tank, desired: u32, status: &mut TankStatus, context: &Context) -> Result<Plan> {
        let rate = |open| f64::from(if open { tank.spec.inflow } else { 0 }) - f64::from(tank.spec.outflow);
        let open = self.observe(tank, status, context);
        let plan = plan(status.level, open, desired, &tank.spec);
        // In case the valve cannot be turned.
        status.rate = rate(open);
        let data = Some([("position".to_owned(), if plan.open { "open" } else { "closed" }.to_owned())].into());
        context.apply_set(tank).apply(ConfigMap { data, ..ConfigMap::default() }, &self.valves).await?;
        status.rate = rate(plan.open);
        Ok(plan)
    }
}

impl StatusReconciler for TankReconciler {
    type Object = Tank;
    type Error = Error;

    async fn reconcile(&self, tank: Arc<Tank>, status: &mut TankStatus, context: Context) -> Reported<Action> {
        let plan = self.converge(&tank, tank.spec.desired, status, &context).await?;
        Ok((plan.report, Action::After(plan.look_again)))
    }

    fn finalizer(&self) -> Option<&str> {
        Some("plant.example.org/drain")
    }

    /// Drains the tank before it is deleted.
    async fn clean_up(&self, tank: Arc<Tank>, status: &mut TankStatus, context: Context) -> Reported<CleanedUp> {
        let plan = self.converge(&tank, 0, status, &context).await?;
        Ok((plan.report, if status.level > 0.0 { CleanedUp::NotYet(plan.look_again) } else { CleanedUp::Yes }))
    }
}

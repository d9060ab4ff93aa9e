//! The level of the water, and the position of the valve: no cluster, no clock.

use std::time::Duration;

use trishanku_framework::status::Report;

use crate::tank::TankSpec;

/// The position of the valve, when to reconcile again, and the report.
pub(crate) struct Plan {
    pub(crate) open: bool,
    pub(crate) look_again: Duration,
    pub(crate) report: Report,
}

/// Returns the level after some seconds in which it rises by `rate` litres per second.
pub(crate) fn level_after(seconds: f64, level: f64, rate: f64, tank: &TankSpec) -> f64 {
    (level + rate * seconds).clamp(0.0, f64::from(tank.capacity))
}

/// Opens the valve when a tenth of the capacity is missing, and closes it when nothing is.
pub(crate) fn plan(level: f64, open: bool, desired: u32, tank: &TankSpec) -> Plan {
    let [capacity, desired, inflow, outflow] = [tank.capacity, desired, tank.inflow, tank.outflow].map(f64::from);
    let (band, least) = (capacity / 10.0, (desired - capacity / 10.0).max(0.0));
    let open = level < desired && (open || level <= least);
    // Infinite if the level is never reached.
    let seconds = if open { (desired - level) / (inflow - outflow).max(0.0) } else { (level - least) / outflow };
    let look_again = Duration::from_secs_f64(if seconds > 0.0 { seconds.clamp(0.1, 60.0) } else { 60.0 });
    let report = if open && inflow <= outflow {
        Report::stalled("RunsDry", format!("{outflow} l/s are taken, and only {inflow} l/s come in"))
    } else if (level - desired).abs() > 1.5 * band {
        Report::reconciling(if level < desired { "Filling" } else { "Draining" }, format!("to {desired} litres"))
    } else {
        Report::ready("AtLevel", "")
    };
    Plan { open, look_again, report }
}

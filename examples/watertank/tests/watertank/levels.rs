//! Tests of the plan, without a cluster and without waiting.

use std::time::Duration;

use trishanku_framework::status::Report;

use crate::plan::{Plan, level_after, plan};
use crate::tank::TankSpec;

fn tank(desired: u32, inflow: u32, outflow: u32) -> TankSpec {
    TankSpec { capacity: 100, desired, inflow, outflow }
}

#[test]
fn a_tank_is_filled_and_kept_at_its_level() {
    for tank in [tank(50, 30, 10), tank(100, 11, 10), tank(5, 1000, 100), tank(1, 3, 2)] {
        let (mut level, mut open, mut filled) = (0.0, false, false);
        let least = f64::from(tank.desired.saturating_sub(10));
        for _ in 0..1000 {
            let Plan { open: next, look_again, .. } = plan(level, open, tank.desired, &tank);
            open = next;
            // Timers are late.
            let rate = f64::from(if open { tank.inflow } else { 0 }) - f64::from(tank.outflow);
            level = level_after(look_again.as_secs_f64() + 0.002, level, rate, &tank);
            filled |= level >= f64::from(tank.desired);
            let late = 0.2 * f64::from(tank.inflow);
            assert!(level <= f64::from(tank.desired) + late, "{level} {tank:?}");
            assert!(!filled || level >= least - late, "{level} {tank:?}");
        }
        assert!(filled, "{level} {tank:?}");
    }
}

#[test]
fn who_looks_again_and_again_changes_nothing() {
    let tank = tank(50, 30, 10);
    for (level, open, expected) in [(45.0, true, true), (45.0, false, false), (40.0, false, true), (50.0, true, false)]
    {
        let first = plan(level, open, tank.desired, &tank);
        assert_eq!(first.open, expected, "{level} {open}");
        assert_eq!(plan(level, first.open, tank.desired, &tank).open, expected, "{level} {open}");
    }
}

#[test]
fn what_is_said_is_so_and_nothing_runs_hot() {
    let (filling, draining) =
        (Report::reconciling("Filling", "to 50 litres"), Report::reconciling("Draining", "to 0 litres"));
    let dry = Report::stalled("RunsDry", "10 l/s are taken, and only 10 l/s come in");
    let at_level = Report::ready("AtLevel", "");
    for (level, desired, inflow, report, look_again) in [
        (0.0, 50, 30, filling, 2_500),
        (45.0, 50, 30, at_level.clone(), 500),
        (90.0, 0, 30, draining, 9_000),
        (0.0, 0, 30, at_level.clone(), 60_000),
        (0.0, 50, 10, dry, 60_000),
        (50.0, 50, 30, at_level, 1_000),
    ] {
        let plan = plan(level, false, desired, &tank(desired, inflow, 10));
        assert_eq!((plan.report, plan.look_again), (report, Duration::from_millis(look_again)), "{level} {desired}");
    }
}

//! Metrics of internal tasks, which are started again after a panic.

use std::fmt::Error;

use gitcd_core::supervisor::Supervisor;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::figures::Out;

pub(super) fn encode(supervisor: &Supervisor, out: &mut Out) -> Result<(), Error> {
    let statuses = supervisor.statuses();
    let down = statuses.values().filter(|task| task.is_down).count();
    out.gauge("gitcd_tasks_down", "Internal tasks that have panicked and are about to be started again", down as f64)?;
    if statuses.is_empty() {
        return Ok(());
    }
    let help = "Restarts of an internal task after a panic";
    let mut encoder = out.encoder.encode_descriptor("gitcd_task_restarts", help, None, MetricType::Counter)?;
    for (name, task) in &statuses {
        ConstCounter::new(task.restarts as f64).encode(encoder.encode_family(&[("task", *name)])?)?;
    }
    Ok(())
}

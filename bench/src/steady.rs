//! A steady load of puts and gets, measured from the moment at which each request is due.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::client::{get, put};
use crate::data::KeySpace;
use crate::load::histogram;
use crate::target::Target;

/// Latency of the steady load, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) requests: u64,
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        let milliseconds = |value: u64| value as f64 / 1e6;
        Self {
            p50: milliseconds(histogram.value_at_quantile(0.5)),
            p99: milliseconds(histogram.value_at_quantile(0.99)),
            max: milliseconds(histogram.max()),
            requests: histogram.len(),
        }
    }
}

/// Puts and gets at a steady rate; measured from the moment at which each was due.
pub(crate) async fn steady(target: &Target, space: KeySpace, rate: u64, length: Duration) -> Result<Histogram<u64>> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / u32::try_from(rate)?);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (start, mut running) = (Instant::now(), tokio::task::JoinSet::new());
    let mut number = 0;
    while start.elapsed() < length {
        let due = ticks.tick().await.into_std();
        let key = number * 7_919 % space.keys;
        for writes in [true, false] {
            let mut kv = target.client.kv(number as usize);
            running.spawn(async move {
                if writes {
                    kv.put(put(space.key(key), space.value(key, number + 2, number))).await?;
                } else {
                    kv.range(get(space.key(key))).await?;
                }
                anyhow::Ok(due.elapsed().as_nanos() as u64)
            });
        }
        number += 1;
    }
    let mut latency = histogram();
    while let Some(done) = running.join_next().await {
        latency.saturating_record(done.context("a client panicked")??);
    }
    Ok(latency)
}

//! Readiness and liveness of the program.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a controller reports that it is alive.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

/// A registry of what is not ready yet, and of what is stuck. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<StaticKind>>);

#[derive(Debug, Default)]
struct StaticKind {
    /// How many conditions of that name are not met; those that are met stay, with 0.
    awaited: BTreeMap<String, usize>,
    beats: BTreeMap<String, Instant>,
}

/// A condition of readiness. The program is not ready until [`ready`](Self::ready) is called; dropping the condition does not
/// meet it.
#[derive(Debug)]
#[must_use = "the program is not ready before this is"]
pub struct Awaited {
    health: Health,
    what: String,
}

impl Health {
    /// Registers a condition of readiness.
    pub fn wait_for(&self, what: impl Into<String>) -> Awaited {
        let what = what.into();
        *self.known().awaited.entry(what.clone()).or_default() += 1;
        Awaited { health: self.clone(), what }
    }

    /// Checks readiness, for a readiness probe.
    ///
    /// # Errors
    /// The names that were [registered](Self::wait_for) and are not ready.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        failing(self.readiness())
    }

    /// Checks liveness, for a liveness probe: each controller has to report once a minute.
    ///
    /// # Errors
    /// The controllers that are stuck.
    pub fn alive(&self) -> Result<(), Vec<String>> {
        failing(self.liveness())
    }

    /// Returns the name of each condition, and whether it is met.
    pub(crate) fn readiness(&self) -> Vec<(String, bool)> {
        self.known().awaited.iter().map(|(name, lacking)| (name.clone(), *lacking == 0)).collect()
    }

    /// Returns the name of each controller that reports, and whether it is alive.
    pub(crate) fn liveness(&self) -> Vec<(String, bool)> {
        self.known()
            .beats
            .iter()
            .map(|(name, beat)| (name.clone(), beat.elapsed() <= HEARTBEAT_INTERVAL * 12))
            .collect()
    }

    pub(crate) fn pulse(&self, of: &str) -> Heartbeat {
        let pulse = Heartbeat { health: self.clone(), of: of.to_owned() };
        pulse.beat();
        pulse
    }

    #[cfg(test)]
    pub(crate) fn stop_of(&self, whom: &str) {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        self.known().beats.insert(whom.to_owned(), long_ago);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, StaticKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// Meets the condition.
    pub fn ready(self) {
        let mut known = self.health.known();
        if let Some(left) = known.awaited.get_mut(&self.what) {
            *left -= 1;
        }
    }
}

fn failing(checks: Vec<(String, bool)>) -> Result<(), Vec<String>> {
    let failing: Vec<_> = checks.into_iter().filter_map(|(name, good)| (!good).then_some(name)).collect();
    if failing.is_empty() { Ok(()) } else { Err(failing) }
}

/// Reports that a controller is not stuck.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    health: Health,
    of: String,
}

impl Heartbeat {
    /// Reports once; returns the time until the next report is due.
    pub(crate) fn beat(&self) -> Duration {
        self.health.known().beats.insert(self.of.clone(), Instant::now());
        HEARTBEAT_INTERVAL
    }

    /// Reports for ever.
    pub(crate) async fn keep(self) {
        loop {
            tokio::time::sleep(self.beat()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_was_announced_has_to_be_ready() {
        let health = Health::default();
        assert_eq!(health.ready(), Ok(()));
        let (one, other) = (health.wait_for("a cache"), health.wait_for("a cache"));
        let last = health.wait_for("a pump");
        one.ready();
        assert_eq!(health.clone().ready(), Err(vec!["a cache".to_owned(), "a pump".to_owned()]));
        other.ready();
        last.ready();
        assert_eq!(health.ready(), Ok(()));
    }

    #[test]
    fn a_task_without_progress_for_a_minute_is_named() {
        let health = Health::default();
        let pulse = health.pulse("tank");
        assert_eq!(health.alive(), Ok(()));
        health.stop_of("tank");
        assert_eq!(health.alive(), Err(vec!["tank".to_owned()]));
        pulse.beat();
        assert_eq!(health.alive(), Ok(()));
    }
}

//! Whether the program is ready, and whether it is stuck.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often whoever has a pulse shows it.
const BEAT: Duration = Duration::from_secs(5);

/// Collects what is not ready yet, and who has stopped. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// How many of that name are not ready; those that are stay, with 0.
    awaited: BTreeMap<String, usize>,
    beats: BTreeMap<String, Instant>,
}

/// Something that has to be ready before the program is. It is not, until [`ready`](Self::ready) says so; dropping it does not.
#[derive(Debug)]
#[must_use = "the program is not ready before this is"]
pub struct Awaited {
    health: Health,
    what: String,
}

impl Health {
    /// Announces something that has to be ready.
    pub fn wait_for(&self, what: impl Into<String>) -> Awaited {
        let what = what.into();
        *self.known().awaited.entry(what.clone()).or_default() += 1;
        Awaited { health: self.clone(), what }
    }

    /// For a readiness probe: `Err` has what is not ready.
    ///
    /// # Errors
    /// The names that were [announced](Self::wait_for) and are not ready.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        failing(self.readiness())
    }

    /// For a liveness probe: `Err` has who has shown no sign of life for a minute.
    ///
    /// # Errors
    /// The controllers that are stuck.
    pub fn alive(&self) -> Result<(), Vec<String>> {
        failing(self.liveness())
    }

    /// Everything that was announced, by name, and whether it is ready.
    pub(crate) fn readiness(&self) -> Vec<(String, bool)> {
        self.known().awaited.iter().map(|(name, lacking)| (name.clone(), *lacking == 0)).collect()
    }

    /// Everybody who has a pulse, by name, and whether it beats.
    pub(crate) fn liveness(&self) -> Vec<(String, bool)> {
        self.known().beats.iter().map(|(name, beat)| (name.clone(), beat.elapsed() <= BEAT * 12)).collect()
    }

    pub(crate) fn pulse(&self, of: &str) -> Pulse {
        let pulse = Pulse { health: self.clone(), of: of.to_owned() };
        pulse.beat();
        pulse
    }

    #[cfg(test)]
    pub(crate) fn stop_of(&self, whom: &str) {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(61)).unwrap();
        self.known().beats.insert(whom.to_owned(), long_ago);
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Awaited {
    /// It is ready now.
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

/// Shows that somebody is not stuck.
#[derive(Clone, Debug)]
pub(crate) struct Pulse {
    health: Health,
    of: String,
}

impl Pulse {
    /// Shows it now; returns when to do so again at the latest.
    pub(crate) fn beat(&self) -> Duration {
        self.health.known().beats.insert(self.of.clone(), Instant::now());
        BEAT
    }

    /// Shows it for ever.
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
    fn whoever_shows_no_sign_of_life_for_a_minute_is_named() {
        let health = Health::default();
        let pulse = health.pulse("tank");
        assert_eq!(health.alive(), Ok(()));
        health.stop_of("tank");
        assert_eq!(health.alive(), Err(vec!["tank".to_owned()]));
        pulse.beat();
        assert_eq!(health.alive(), Ok(()));
    }
}

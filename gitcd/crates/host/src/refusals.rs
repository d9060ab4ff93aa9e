//! Tells the log who was not let in. Never what they showed.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::header;
use gitcd_net::listener::Peer;
use gitcd_net::throttle::LogThrottle;
use parking_lot::Mutex;

use super::problem::Problem;

/// A flood of requests must not become one of lines.
const EVERY: Duration = Duration::from_millis(100);
/// Of a path that may be anything.
const MAX_PATH_CHARS: usize = 200;

/// Who asks, and for what.
#[derive(Debug)]
pub(super) struct Asker {
    address: Option<SocketAddr>,
    path: String,
    shows_token: bool,
    /// Who it is, once that is known.
    pub(super) user: Option<String>,
}

impl Asker {
    pub(super) fn of(request: &Request) -> Self {
        Self {
            address: request.extensions().get::<Peer>().map(|peer| peer.address),
            path: request.uri().path().chars().take(MAX_PATH_CHARS).collect(),
            shows_token: request.headers().contains_key(header::AUTHORIZATION),
            user: None,
        }
    }
}

/// Refusals that are told, and how many were not.
#[derive(Debug)]
pub(super) struct Refusals {
    unknown: Mutex<Complaints>,
    nobody: Mutex<Complaints>,
    forbidden: Mutex<Complaints>,
}

#[derive(Debug)]
struct Complaints {
    throttle: LogThrottle,
    unheard: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        let new = || Mutex::new(Complaints { throttle: LogThrottle::every(EVERY), unheard: 0 });
        Self { unknown: new(), nobody: new(), forbidden: new() }
    }
}

impl Complaints {
    /// How many there were since the last one that was told, if this one is to be told.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.throttle.admits(now) {
            return Some(std::mem::take(&mut self.unheard));
        }
        self.unheard += 1;
        None
    }
}

impl Refusals {
    /// Tells of a request that was not answered, if that was for want of rights.
    pub(super) fn tell(&self, problem: &Problem, asker: &Asker) {
        let Asker { address, path, shows_token, user } = asker;
        let address = address.map(tracing::field::display);
        let due = |complaints: &Mutex<Complaints>| complaints.lock().due(Instant::now());
        match problem {
            Problem::Unauthorized if *shows_token => {
                if let Some(others) = due(&self.unknown) {
                    tracing::warn!(address, ?path, others, "refused (401): unknown token");
                }
            }
            // Git shows its token only when it is asked to.
            Problem::Unauthorized => {
                if let Some(others) = due(&self.nobody) {
                    tracing::info!(address, ?path, others, "asked for a token (401)");
                }
            }
            Problem::Forbidden => {
                if let Some(others) = due(&self.forbidden) {
                    tracing::warn!(address, ?path, user, others, "refused (403): no access, or no such repository");
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_one_is_told_with_how_many_others_there_were() {
        let mut complaints = Complaints { throttle: LogThrottle::every(EVERY), unheard: 0 };
        let start = Instant::now();
        let told: Vec<_> = (0..6).filter_map(|at| complaints.due(start + Duration::from_millis(40) * at)).collect();
        assert_eq!(told, [0, 2]);
    }
}

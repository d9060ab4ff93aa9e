//! Logs refused requests, never their credentials.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::http::header;
use gitcd_net::listener::Peer;
use gitcd_net::throttle::LogThrottle;
use parking_lot::Mutex;

use super::problem::Problem;

/// Shortest interval between log lines, so that a flood of requests does not flood the log.
const EVERY: Duration = Duration::from_millis(100);
/// How much of a path is logged, since clients can send any.
const MAX_PATH_CHARS: usize = 200;

/// The client and the path of a request.
#[derive(Debug)]
pub(super) struct Asker {
    address: Option<SocketAddr>,
    path: String,
    shows_token: bool,
    /// Set once the client is authenticated.
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

/// Throttles for the log lines about refused requests, one for each kind.
#[derive(Debug)]
pub(super) struct Refusals {
    unknown: Mutex<Complaints>,
    nobody: Mutex<Complaints>,
    forbidden: Mutex<Complaints>,
}

#[derive(Debug)]
struct Complaints {
    throttle: LogThrottle,
    suppressed: u64,
}

impl Default for Refusals {
    fn default() -> Self {
        let new = || Mutex::new(Complaints { throttle: LogThrottle::every(EVERY), suppressed: 0 });
        Self { unknown: new(), nobody: new(), forbidden: new() }
    }
}

impl Complaints {
    /// Returns how many refusals were suppressed since the last logged one, if this one is to be logged.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.throttle.admits(now) {
            return Some(std::mem::take(&mut self.suppressed));
        }
        self.suppressed += 1;
        None
    }
}

impl Refusals {
    /// Logs a request that failed for lack of access.
    pub(super) fn log(&self, problem: &Problem, asker: &Asker) {
        let Asker { address, path, shows_token, user } = asker;
        let address = address.map(tracing::field::display);
        let due = |complaints: &Mutex<Complaints>| complaints.lock().due(Instant::now());
        match problem {
            Problem::Unauthorized if *shows_token => {
                if let Some(others) = due(&self.unknown) {
                    tracing::warn!(address, ?path, others, "refused (401): unknown token");
                }
            }
            // Git sends its token only after a 401.
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
    fn of_a_flood_one_is_logged_with_the_number_of_suppressed_ones() {
        let mut complaints = Complaints { throttle: LogThrottle::every(EVERY), suppressed: 0 };
        let start = Instant::now();
        let logged: Vec<_> = (0..6).filter_map(|at| complaints.due(start + Duration::from_millis(40) * at)).collect();
        assert_eq!(logged, [0, 2]);
    }
}

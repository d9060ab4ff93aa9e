//! Rate limits of a token.
//!
//! GitHub has a primary limit (requests per hour), and secondary ones without published numbers: on concurrent requests,
//! on writes in quick succession, on creations per hour. Clients that continue while they are limited may be blocked.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::GitHubSettings;

/// The longest pause, whatever GitHub says: its primary limit resets every hour.
const LONGEST: Duration = Duration::from_mins(65);
const HOUR: Duration = Duration::from_hours(1);

/// A rate limit that has been reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token has used up GitHub's {limit}")]
pub struct Limited {
    /// The name of the limit.
    pub limit: &'static str,
    /// The remaining time.
    pub wait: Duration,
}

/// Rate limiter of one token.
#[derive(Debug)]
pub(crate) struct Pace {
    settings: GitHubSettings,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: Option<(Instant, &'static str)>,
    /// The writes of the last hour.
    writes: VecDeque<Instant>,
    next_write: Option<Instant>,
    secondary_in_a_row: u32,
}

impl Pace {
    pub(crate) fn new(settings: GitHubSettings) -> Self {
        Self { settings, state: Mutex::default() }
    }

    /// Checks whether requests are allowed now.
    pub(crate) fn check(&self) -> Result<(), Limited> {
        let mut state = self.state.lock();
        let Some((until, limit)) = state.closed else { return Ok(()) };
        let wait = until.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            state.closed = None;
            return Ok(());
        }
        Err(Limited { limit, wait })
    }

    /// Waits for the turn of a write.
    pub(crate) async fn turn(&self) -> Result<(), Limited> {
        self.check()?;
        let turn = {
            let (now, mut state) = (Instant::now(), self.state.lock());
            while state.writes.front().is_some_and(|first| *first + HOUR <= now) {
                state.writes.pop_front();
            }
            if let Some(first) = state.writes.front()
                && state.writes.len() >= self.settings.writes_per_hour
            {
                return Err(Limited { limit: "limit of writes per hour", wait: *first + HOUR - now });
            }
            let turn = state.next_write.map_or(now, |next| next.max(now));
            state.next_write = Some(turn + self.settings.between_writes);
            state.writes.push_back(turn);
            turn
        };
        sleep_until(turn).await;
        // A limit may have been reached while waiting.
        self.check()
    }

    /// Updates the limits from a response; returns the limit if the request was rejected because of one.
    pub(crate) fn learn(&self, status: StatusCode, headers: &HeaderMap, text: &str) -> Option<Limited> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let remaining = number("x-ratelimit-remaining");
        let until_reset = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Duration::from_secs(number("x-ratelimit-reset")?).checked_sub(now)
        };
        let is_refused = matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS);
        let is_secondary = text.to_ascii_lowercase().contains("secondary rate limit");
        let mut state = self.state.lock();
        let limited = if is_refused && (is_secondary || number("retry-after").is_some()) {
            let doublings = state.secondary_in_a_row.min(6);
            state.secondary_in_a_row += 1;
            let wait = number("retry-after").map_or(self.settings.secondary * (1 << doublings), Duration::from_secs);
            Some(Limited { limit: "secondary limit", wait })
        } else if is_refused && (remaining == Some(0) || status == StatusCode::TOO_MANY_REQUESTS) {
            Some(Limited {
                limit: "primary limit of requests per hour",
                wait: until_reset().unwrap_or(self.settings.secondary),
            })
        } else {
            None
        };
        if limited.is_none() && !is_refused {
            state.secondary_in_a_row = 0;
        }
        // This request succeeded, but the next one would not.
        let close = limited.clone().or_else(|| {
            let is_low = remaining.is_some_and(|remaining| remaining <= self.settings.left_to_others);
            is_low.then(until_reset).flatten().map(|wait| Limited { limit: "primary limit of requests per hour", wait })
        });
        if let Some(Limited { limit, wait }) = close {
            let until = Instant::now() + wait.clamp(Duration::from_secs(1), LONGEST);
            // Concurrent requests may be rejected one after another; the longest pause counts.
            if state.closed.is_none_or(|(there, _)| there < until) {
                tracing::warn!(limit, seconds = wait.as_secs(), "pausing requests to GitHub");
                state.closed = Some((until, limit));
            }
        }
        limited.map(|limited| Limited { wait: limited.wait.clamp(Duration::from_secs(1), LONGEST), ..limited })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, String)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn limits_are_kept_for_as_long_as_they_say() {
        let pace = Pace::new(GitHubSettings::default());
        let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 100;
        let used_up = headers(&[("x-ratelimit-remaining", "0".into()), ("x-ratelimit-reset", soon.to_string())]);
        let primary = pace.learn(StatusCode::FORBIDDEN, &used_up, "API rate limit exceeded").unwrap();
        assert!(primary.wait > Duration::from_secs(90) && primary.wait <= Duration::from_secs(100), "{primary:?}");
        assert!(pace.check().unwrap_err().to_string().contains("primary limit of requests per hour"));
        tokio::time::advance(Duration::from_secs(101)).await;
        pace.check().unwrap();
        // Without a given delay: a minute, then two and four, and a minute again after a success.
        let none = HeaderMap::new();
        for minutes in [1, 2, 4] {
            let limited =
                pace.learn(StatusCode::FORBIDDEN, &none, "You have exceeded a secondary rate limit.").unwrap();
            assert_eq!(limited.wait, Duration::from_mins(minutes));
        }
        assert_eq!(pace.learn(StatusCode::OK, &none, ""), None);
        let asked = headers(&[("retry-after", "7".into())]);
        assert_eq!(pace.learn(StatusCode::TOO_MANY_REQUESTS, &asked, "").unwrap().wait, Duration::from_secs(7));
        tokio::time::advance(Duration::from_mins(5)).await;
        // A missing permission is not a limit.
        let left = headers(&[("x-ratelimit-remaining", "4000".into())]);
        assert_eq!(pace.learn(StatusCode::FORBIDDEN, &left, "Resource not accessible"), None);
        pace.check().unwrap();
        // The last requests are left to other users of the token.
        let low = headers(&[("x-ratelimit-remaining", "100".into()), ("x-ratelimit-reset", soon.to_string())]);
        assert_eq!(pace.learn(StatusCode::OK, &low, ""), None);
        pace.check().unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn writes_are_apart_and_not_too_many() {
        let settings = GitHubSettings { writes_per_hour: 3, ..GitHubSettings::default() };
        let (pace, begun) = (Pace::new(settings), Instant::now());
        for after in 0..3 {
            pace.turn().await.unwrap();
            assert_eq!(begun.elapsed().as_secs(), after);
        }
        let limited = pace.turn().await.unwrap_err();
        assert!(limited.wait > Duration::from_mins(59), "{limited:?}");
        tokio::time::advance(limited.wait).await;
        pace.turn().await.unwrap();
    }
}

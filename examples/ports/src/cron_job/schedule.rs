//! When runs are due: no cluster, no clock.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// A schedule that cannot be parsed.
#[derive(Debug, thiserror::Error)]
#[error("cannot parse the schedule {schedule:?}: {source}")]
pub struct ScheduleError {
    schedule: String,
    #[source]
    source: CronError,
}

/// Times that repeat.
#[derive(Clone, Debug)]
pub struct Schedule(Cron);

/// The last scheduled time that no run was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// None: the next one is in the future.
    NotDue,
    /// A run of this time may start.
    Due(Timestamp),
    /// A run of this time should have started, and its deadline has passed.
    TooLate(Timestamp),
}

impl Schedule {
    /// Parses five fields of a crontab, or one of `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn parse(schedule: &str) -> Result<Self, ScheduleError> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let failed = |source| ScheduleError { schedule: schedule.to_owned(), source };
        parser.parse(schedule).map(Self).map_err(failed)
    }

    /// Returns the first time after `now`; `None` if there is none, as of February 30.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.0.find_next_occurrence(&now.to_zoned(TimeZone::UTC), false);
        next.ok().map(|next| next.timestamp())
    }

    /// Returns the last run that is due, and was not started by `last`. Earlier ones are skipped: however many were missed, one
    /// starts.
    pub fn run(&self, last: Timestamp, now: Timestamp, deadline: Option<SignedDuration>) -> Run {
        let latest = self.0.find_previous_occurrence(&now.to_zoned(TimeZone::UTC), true);
        let Some(latest) = latest.ok().map(|latest| latest.timestamp()).filter(|latest| *latest > last) else {
            return Run::NotDue;
        };
        match deadline {
            Some(deadline) if now.duration_since(latest) > deadline => Run::TooLate(latest),
            _ => Run::Due(latest),
        }
    }
}

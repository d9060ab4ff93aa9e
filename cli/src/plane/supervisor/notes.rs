//! Records and publishes the runners' reports.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Course, Failure, MOST_EXITS, Notice, Supervisor};
use crate::plane::failure::repeated;
use crate::plane::runner::Report;
use crate::plane::state::{Condition, Phase};

impl Supervisor<'_> {
    /// Records and publishes a report; returns the failure of a component that was never ready.
    pub(super) fn note(&mut self, index: usize, report: Report) -> Option<Failure> {
        let has_turns = self.has_turns(index);
        let recorded = &mut self.state.components[index];
        let running = &mut self.running[index];
        let component = running.component.clone();
        let mut failed = None;
        match report {
            Report::Preparing(process) => recorded.process = process,
            Report::Progress(progress) => {
                if let Some(launched) = &mut running.launched {
                    // It is not late as long as it makes progress.
                    launched.since = Instant::now();
                }
                (self.notify)(Notice::Preparing { component: component.name.clone(), progress });
            }
            Report::Started(process) => {
                let stands_by = running.course == Course::StandsBy;
                recorded.condition = if stands_by { Condition::Waiting } else { Condition::Starting };
                recorded.process = process;
                recorded.started_unix_seconds = Some(unix_seconds(SystemTime::now()));
                running.not_prepared = None;
            }
            Report::Ready(after) => {
                recorded.condition = Condition::Ready;
                running.course = Course::Up;
                running.not_prepared = None;
                (self.notify)(Notice::Ready { component: component.name.clone(), port: component.port, after });
            }
            Report::NotPrepared { cause } => {
                recorded.condition = Condition::BackingOff;
                recorded.process = None;
                running.not_prepared = Some(cause);
            }
            Report::Died { cause, pause } => {
                recorded.condition = Condition::BackingOff;
                recorded.process = None;
                recorded.started_unix_seconds = None;
                recorded.restarts += 1;
                recorded.last_exit = Some(cause.clone());
                let failure = Failure::of(&component, cause);
                let may_recover = !component.is_essential && failure.remedy.is_none();
                let has_started = self.state.phase != Phase::Starting || running.course != Course::Awaited;
                if has_turns && has_started {
                    // Another server may be the writer now. If not, it is ready again soon.
                    running.course = Course::StandsBy;
                }
                if !has_started && may_recover && recorded.restarts >= MOST_EXITS {
                    running.course = Course::GivenUp;
                    let cause = repeated(&failure.cause, recorded.restarts);
                    (self.notify)(Notice::Late(Failure { cause, ..failure }));
                } else if has_started || may_recover {
                    (self.notify)(Notice::Restarting(failure, pause));
                } else {
                    failed = Some(failure);
                }
                if has_turns {
                    self.suspend(index);
                }
            }
            Report::Ended(_) => {
                recorded.process = None;
                recorded.started_unix_seconds = None;
                if running.is_suspended && self.state.phase != Phase::Stopping {
                    recorded.condition = Condition::Waiting;
                    running.launched = None;
                    (running.is_suspended, running.course) = (false, Course::Awaited);
                } else {
                    recorded.condition = Condition::Stopped;
                    running.ended = true;
                }
            }
        }
        self.save();
        failed
    }

    /// Like [`Self::note`] while stopping, when exits are expected and not reported.
    pub(super) fn note_end(&mut self, index: usize, report: Report) {
        match report {
            Report::Ended(how) => {
                let component = self.running[index].component.name.clone();
                let after = self.running[index].stop_requested.map(|since| since.elapsed()).unwrap_or_default();
                self.note(index, Report::Ended(how));
                (self.notify)(Notice::Ended { component, how, after });
            }
            Report::Preparing(_) | Report::Started(_) => {
                self.note(index, report);
            }
            Report::Ready(_) | Report::Died { .. } | Report::NotPrepared { .. } | Report::Progress(_) => {}
        }
    }

    pub(super) async fn not_ready(&self, at: usize, within: Duration) -> Failure {
        let late = &self.running[at];
        let seconds = within.as_secs();
        if let Some(cause) = &late.not_prepared {
            return Failure::of(&late.component, format!("was not ready within {seconds}s: {cause}"));
        }
        let answer = late.probes.ready.probe(Instant::now(), None).await;
        let reason = answer.map_or_else(|error| error, |()| "it is ready now".into());
        Failure::of(&late.component, format!("was not ready within {seconds}s ({reason})"))
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

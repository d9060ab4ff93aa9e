//! Progress of long steps, on standard error: one line that is updated on a terminal, otherwise a log line now and then.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gitcd_server::server::Server;
use gitcd_sync::progress::FetchProgress;
use tokio::task::JoinHandle;

/// How long a step takes before its progress is shown.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of updates on a terminal.
const REDRAW: Duration = Duration::from_millis(500);
/// Interval of log lines.
const LOG: Duration = Duration::from_secs(10);

/// Width of the line that is on the terminal now; 0 if there is none.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

/// The progress of one step.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    last: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// Starts a step.
    pub(super) fn new() -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { started: Instant::now(), last: None, is_terminal: io::stderr().is_terminal() && !is_dumb }
    }

    /// Shows the state of the step if it is due.
    pub(super) fn show(&mut self, state: impl Display) {
        if !self.is_due(Instant::now()) {
            return;
        }
        self.last = Some(Instant::now());
        if self.is_terminal { draw(&state.to_string()) } else { tracing::info!("{state}") }
    }

    /// Ends the step; removes its line.
    pub(super) fn end(&mut self) {
        if self.last.take().is_some() && self.is_terminal {
            clear();
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let every = if self.is_terminal { REDRAW } else { LOG };
        self.last.map_or(now >= self.started + PATIENCE, |last| now >= last + every)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

/// Replaces the line on the terminal. Pads it, since escapes are removed if `NO_COLOR` is set.
fn draw(text: &str) {
    let width = text.chars().count();
    let before = SHOWN.swap(width, Ordering::Relaxed);
    let mut err = io::stderr().lock();
    let padding = " ".repeat(before.saturating_sub(width));
    // There is nowhere to report a failed write.
    let _unread = write!(err, "\r{text}{padding}");
    let _unread = if width == 0 { write!(err, "\r") } else { Ok(()) }.and_then(|()| err.flush());
}

/// Removes the line of progress from the terminal, if there is one, before something else is printed.
pub(super) fn clear() {
    if SHOWN.load(Ordering::Relaxed) > 0 {
        draw("");
    }
}

/// Standard error for log lines: removes a line of progress first.
pub(super) fn log_writer() -> io::Stderr {
    clear();
    io::stderr()
}

/// Shows fetches until it is dropped.
#[derive(Debug)]
pub(super) struct Fetches(JoinHandle<()>);

impl Fetches {
    /// Shows the fetches of a server from its remotes. Needs a runtime.
    pub(super) fn of(server: &Server) -> Vec<Self> {
        let fetches = server.puller().fetches();
        fetches.map(|(remote, progress)| Self::show(remote.to_owned(), progress.clone())).collect()
    }

    /// Shows the fetches from a remote. Needs a runtime.
    pub(super) fn show(remote: String, progress: FetchProgress) -> Self {
        Self(tokio::spawn(async move {
            loop {
                progress.started().await;
                let mut shown = Progress::new();
                while let Some(fetching) = progress.current() {
                    shown.show(format_args!("fetching from {remote}: {fetching}"));
                    tokio::time::sleep(REDRAW).await;
                }
            }
        }))
    }
}

impl Drop for Fetches {
    fn drop(&mut self) {
        self.0.abort();
        // The task ends later.
        clear();
    }
}

/// Shows how long a blocking step takes, in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Step(Option<(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Step {
    /// Starts to show a step that is named like "reading FILE".
    pub(super) fn start(name: impl Into<Arc<str>>) -> Self {
        let (ended, end) = std::sync::mpsc::channel();
        let name = name.into();
        let thread = std::thread::Builder::new().spawn(move || {
            let mut shown = Progress::new();
            while end.recv_timeout(REDRAW) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let seconds = shown.started.elapsed().as_secs();
                shown.show(format_args!("{name} ({seconds} s)"));
            }
        });
        // Without a thread, the step is not shown.
        Self(thread.ok().map(|thread| (ended, thread)))
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.0.take() {
            drop(ended);
            // It only prints.
            let _panicked = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_step_is_not_shown_and_a_log_gets_a_line_every_ten_seconds() {
        for (is_terminal, every) in [(true, REDRAW), (false, LOG)] {
            let started = Instant::now();
            let mut progress = Progress { started, last: None, is_terminal };
            assert!(!progress.is_due(started + PATIENCE.mul_f64(0.99)));
            let first = started + PATIENCE;
            assert!(progress.is_due(first));
            progress.last = Some(first);
            assert!(!progress.is_due(first + every.mul_f64(0.99)) && progress.is_due(first + every));
            // Nothing was drawn.
            progress.last = None;
        }
    }
}

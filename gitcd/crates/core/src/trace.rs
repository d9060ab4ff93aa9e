//! Whether requests and writes are traced, and the spans that a trace consists of.
//!
//! Without a collector, the only cost of tracing is one load of a flag.

use std::sync::atomic::{AtomicBool, Ordering};

use tracing::Span;

/// The target of all spans; no log line has it.
pub const TARGET: &str = "gitcd::telemetry";

static ON: AtomicBool = AtomicBool::new(false);

/// Switches spans on or off, for the whole process.
pub fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Returns whether a collector wants spans.
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Returns the span of the request that this thread serves, or a disabled span.
pub fn current() -> Span {
    if on() { Span::current() } else { Span::none() }
}

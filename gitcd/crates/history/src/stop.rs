//! Reads that end before they are complete.

use std::fmt;
use std::sync::Arc;

use super::{History, HistoryError};

/// Says when reads are abandoned; never by default.
#[derive(Clone, Default)]
pub(super) struct Stop(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop" } else { "Never" })
    }
}

impl History {
    /// Makes reads of this history stop early: those that walk commits fail with [`HistoryError::Stopped`] soon after
    /// `should_stop` returns true. It is called for each commit that is read, and must be cheap.
    ///
    /// Reads of one tree, such as [`list`](Self::list), are not interrupted.
    #[must_use]
    pub fn stopped_by(mut self, should_stop: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.stop = Stop(Some(Arc::new(should_stop)));
        self
    }

    /// Returns an error if reads are to stop.
    pub(super) fn proceed(&self) -> Result<(), HistoryError> {
        if self.stop.0.as_ref().is_some_and(|should_stop| should_stop()) { Err(HistoryError::Stopped) } else { Ok(()) }
    }
}

//! Rules: which requests fail, and how.

use std::time::Duration;

use http::Method;

use super::Seen;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is rejected with this code, and a delay for retries. kube-apiserver does not see it.
    Status {
        /// Such as 409, 429, 500.
        code: u16,
        /// Seconds, in the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// It is forwarded after this time.
    Delay(Duration),
    /// The connection breaks before kube-apiserver sees the request.
    Break,
    /// The connection breaks after kube-apiserver has processed the request: the response is lost.
    BreakAfter,
    /// It is never answered.
    Hang,
}

/// A fault for some requests; for all, unless it is narrowed down.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    method: Option<Method>,
    part: Option<String>,
    watch: Option<bool>,
    writes: bool,
    times: Option<u32>,
}

impl Rule {
    /// Creates a rule for all requests, without an end.
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, part: None, watch: None, writes: false, times: None }
    }

    /// Applies it only to this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Applies it only if path and query contain this text.
    #[must_use]
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    /// Applies it only to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watch = Some(true);
        self
    }

    /// Applies it only to writes.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Applies it only to the next `times` requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    pub(super) fn is_for(&self, seen: &Seen) -> bool {
        self.method.as_ref().is_none_or(|method| *method == seen.method)
            && self.part.as_ref().is_none_or(|part| seen.uri.contains(part))
            && self.watch.is_none_or(|watch| watch == seen.watch)
            && (!self.writes || seen.method != Method::GET)
            && self.times != Some(0)
    }

    /// Returns the fault, and whether this was the last time.
    pub(super) fn apply(&mut self) -> (Fault, bool) {
        self.times = self.times.map(|times| times.saturating_sub(1));
        (self.fault, self.times == Some(0))
    }
}

//! Which requests go wrong, and how.

use std::time::Duration;

use http::Method;

use super::Seen;

/// What happens to a request instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this code, and with the seconds after which it may be tried again. kube-apiserver does not see it.
    Status {
        /// Such as 409, 429, 500.
        code: u16,
        /// For the header `Retry-After`.
        retry_after: Option<u32>,
    },
    /// It is passed on after this time.
    Delay(Duration),
    /// The connection breaks before kube-apiserver sees it.
    Break,
    /// The connection breaks after kube-apiserver has done it: nobody learns the answer.
    BreakAfter,
    /// It is never answered.
    Hang,
}

/// A fault for some requests; for all, unless it is narrowed.
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
    /// For all requests, for ever.
    pub fn new(fault: Fault) -> Self {
        Self { fault, method: None, part: None, watch: None, writes: false, times: None }
    }

    /// Only for this method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// Only for paths with their queries that contain this.
    #[must_use]
    pub fn path(mut self, part: impl Into<String>) -> Self {
        self.part = Some(part.into());
        self
    }

    /// Only for watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watch = Some(true);
        self
    }

    /// Only for requests that are to change something.
    #[must_use]
    pub fn writes(mut self) -> Self {
        self.writes = true;
        self
    }

    /// Only for so many requests, from the next on.
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

    /// The fault, and whether it was the last time.
    pub(super) fn apply(&mut self) -> (Fault, bool) {
        self.times = self.times.map(|times| times.saturating_sub(1));
        (self.fault, self.times == Some(0))
    }
}

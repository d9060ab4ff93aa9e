//! Observes branches through their gitcds.
//!
//! gitcd serves `/status` at a port of its pod, to clients with a certificate. In the background, [`Observer`] queries
//! all pods of an object about every [`INTERVAL`] and writes the result to the object's status: at once if a condition
//! has changed, otherwise once per [`REPORT_INTERVAL`]. No reconcile waits for it.
//!
//! | module | content |
//! |---|---|
//! | `ask` | a request over TLS with pinned certificates |
//! | [`answer`] | the response, and the conditions derived from it; pure |
//! | `observer` | a task for each object: when to query, and what to write |
//! | `response` | the response of each pod, and which one counts |
//! | [`pair`] | self-signed certificates where there is no authority |

pub mod answer;
mod ask;
mod observer;
pub mod pair;
mod response;

use std::time::Duration;

pub use self::ask::Identity;
pub use self::observer::{Observed, Observer, StatusSource};

/// Query interval per gitcd, give or take a fifth; longer for more than 300 objects.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Interval of status updates in which only metrics change.
pub const REPORT_INTERVAL: Duration = Duration::from_mins(1);

//! How branches are, as their gitcds say.
//!
//! gitcd shows `/status` at a port of its pod, to whoever has a certificate. [`Observer`] asks each of them, all pods of an object at once, every [`INTERVAL`] or so, in the background, and tells what it
//! learns in the status of the object that the pod is for: at once if something is wrong now that was not before or the other way round, else once in [`TOLD`]. No
//! reconcile waits for that.
//!
//! | module | what it does |
//! |---|---|
//! | `ask` | one question over TLS with pinned certificates |
//! | [`answer`] | what is read of an answer, and what follows from it: pure |
//! | [`pair`] | certificates for where there are none |

pub mod answer;
mod ask;
mod observer;
pub mod pair;

use std::time::Duration;

pub use self::ask::Identity;
pub use self::observer::{Observed, Observer, Tells};

/// How often a gitcd is asked, give or take a fifth; less often if there are more than 300.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// How often figures are told that only move on.
pub const TOLD: Duration = Duration::from_mins(1);

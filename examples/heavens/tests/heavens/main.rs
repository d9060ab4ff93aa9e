//! Tests of the three kinds of heavens on a real kube-apiserver, and of the page that explains them.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

#[path = "../../src/daemon_set.rs"]
mod daemon_set;
mod deployed;
#[path = "../../src/job.rs"]
mod job;
mod runs;
#[path = "../../src/stateful_set.rs"]
mod stateful_set;
mod tutorial;
mod world;

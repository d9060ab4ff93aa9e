//! Sidecars in other people's pods.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod cluster;
mod collisions;
mod heaven;
mod json;
mod promises;
mod snapshots;
mod wrong_pods;

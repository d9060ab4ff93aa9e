//! Sidecars in other people's pods.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod checks;
mod cluster;
mod collisions;
mod everything;
mod heaven;
mod json;
mod pod_fields;
mod promises;
mod random;
mod raw;
mod snapshots;
mod wrong_pods;

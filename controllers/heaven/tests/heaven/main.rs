//! Heavens in a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod drift;
mod observed;
mod samples;
mod secrets;
mod skips;
mod tokens;
mod world;

//! Heavens on a real kube-apiserver.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod drift;
mod encrypted;
mod injected;
mod observed;
mod samples;
mod secrets;
mod skips;
mod tokens;
mod world;

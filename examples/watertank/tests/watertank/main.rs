//! The example: by itself, on a real kube-apiserver, and as the tutorial tells it.
#![expect(clippy::unwrap_used, reason = "helpers of tests may end a test")]

mod cluster;
mod levels;
#[path = "../../src/plan.rs"]
mod plan;
mod process;
#[path = "../../src/tank.rs"]
mod tank;
mod tutorial;
